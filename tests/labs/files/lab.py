"""The files lab, as the contract needs to know it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from monarch_infra.model import Site


class Files:
    """Needs nothing."""

    @contextmanager
    def started(self, root: Path) -> Iterator[None]:
        yield

    def options(self) -> dict[str, Any]:
        return {}

    def living(self, site: Site) -> list[tuple[str, int, int]]:
        found = []
        for file in (site.workdir / "world" / site.deployment).glob("*/[0-9]*"):
            rank, generation = file.name.split(".")
            found.append((file.parent.name, int(rank), int(generation)))
        return sorted(found)


LAB = Files()
"""What `contract.lab` asks for."""
