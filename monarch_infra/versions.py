"""What this process runs of Python and Monarch, which its hosts must run too; imports nothing of ours."""

import sys
from typing import TypedDict


class Versions(TypedDict):
    """The versions that a client and its hosts must share."""

    python: str
    """The minor version, as `3.11`."""
    monarch: str


def client() -> Versions:
    """Return the versions of this process."""
    import importlib.metadata  # 20 ms, and a command that only reads a state asks for nothing here

    return {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "monarch": importlib.metadata.version("torchmonarch"),
    }
