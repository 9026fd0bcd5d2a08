"""Hosts that are files: a provider for tests, which stands in for clouds that refuse, boot slowly and cost money.

It is never shipped; see the README beside it.
"""

from monarch_infra_files.provider import Files

PROVIDER = Files()
