"""The lab of local hosts is this machine: a host is a process, known by its command line."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from monarch_infra.model import Site


class Machine:
    """Needs nothing."""

    @contextmanager
    def started(self, root: Path) -> Iterator[None]:
        yield

    def options(self) -> dict[str, Any]:
        return {}

    def living(self, site: Site) -> list[tuple[str, int, int]]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if not any(word.endswith("worker.py") for word in words):
                continue
            for home in (Path(word) for word in words if word.startswith(f"{site.home}/")):
                try:
                    deployment = json.loads((home / "host.json").read_text())["deployment"]
                except FileNotFoundError:
                    continue  # removed meanwhile
                if deployment == site.deployment:
                    rank, generation = home.name.split(".")
                    found.append((home.parent.name, int(rank), int(generation)))
        return sorted(found)


LAB = Machine()
"""What `contract.lab` asks for."""
