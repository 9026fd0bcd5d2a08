"""What the contract needs to know of a provider's lab: how to ask for hosts there, and how to count them without it.

A lab is the module `labs.<provider>.lab`, whose LAB is one of these; a provider without one fails its contract.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from monarch_infra.model import MeshSpec, Site

TARGET = "lab"


class Lab(Protocol):
    """Where hosts of one provider are really made."""

    def started(self, root: Path) -> Any:
        """Return a context in which hosts can be made for jobs under *root*; skip, naming what is missing."""

    def options(self) -> dict[str, Any]:
        """Return what a target says under the provider's name."""

    def living(self, site: Site) -> list[tuple[str, int, int]]:
        """Return (mesh, rank, generation) of every host of a deployment that lives, without asking the provider."""


@dataclass(frozen=True)
class Place:
    """A job's directory in the lab of one provider."""

    provider: str
    lab: Lab
    root: Path
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.root / "job.yaml"

    def site(self, deployment: str) -> Site:
        return Site(
            deployment=deployment,
            job="contract",
            target=TARGET,
            provider=self.provider,
            options=self.lab.options(),
            home=self.root / ".monarch-infra" / f"contract-{TARGET}",
            workdir=self.root,
        )

    def mesh(self, name: str, hosts: int, **fields: Any) -> MeshSpec:
        return MeshSpec(name=name, hosts=hosts, options=self.lab.options(), **self.versions, **fields)

    def write(self, meshes: str) -> None:
        """Write the job file with these meshes, in YAML's flow form, which JSON is a part of."""
        import json

        target = {"provider": self.provider}
        if options := self.lab.options():
            target[self.provider] = options
        self.file.write_text(f"version: 1\nname: contract\nmeshes: {meshes}\ntargets: {json.dumps({TARGET: target})}\n")


@contextmanager
def place(provider: str, lab: Lab, root: Path, versions: dict[str, str]) -> Iterator[Place]:
    root.mkdir()
    with lab.started(root):
        yield Place(provider, lab, root, versions)
