"""monarch-infra: plan and apply the hosts of PyTorch Monarch jobs.

Importing this package loads nothing heavy: `InfraJob` is fetched when it is first named.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monarch_infra.job import InfraJob

__all__ = ["InfraJob", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "InfraJob":
        from monarch_infra.job import InfraJob

        return InfraJob
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
