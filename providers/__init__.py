"""The providers that come with monarch-infra: one folder per kind of place hosts come from."""
