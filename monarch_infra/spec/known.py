"""Names that the job file knows by themselves: data only, and the one place here that names a provider."""

DEFAULT_TARGET = "local"
"""The target that always exists, and the provider that it always has."""

PLANNED_PROVIDERS = ("aws", "gcp", "inline", "kubernetes", "slurm")
"""Named by the design; one that is installed counts as built."""

DEFAULT_MESH = "workers"
"""The one mesh that a top-level `hosts` stands for."""
