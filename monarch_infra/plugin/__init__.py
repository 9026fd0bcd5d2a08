"""The stack's resources as a Pulumi plug-in, for all providers at once.

It translates the engine's calls into those of `reconcile` and decides nothing: a choice made here would be a
second planner.  The only package that knows Pulumi's provider protocol.
"""

from monarch_infra.plugin.server import serving

__all__ = ["serving"]
