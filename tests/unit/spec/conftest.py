"""A job file to write, and providers that are nowhere."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import pytest
from pydantic import Field, model_validator

from monarch_infra.model import MeshSpec, Record
from monarch_infra.problem import InfraError, Problem, Report, SpecError
from monarch_infra.provider import Provider
from monarch_infra.spec import Loaded, check, load

Write = Callable[..., Path]
Load = Callable[..., Loaded]
Check = Callable[..., Report]


class NoOptions(Record):
    """Settings of a provider that has none."""


class Volume(Record):
    """A map inside a provider's settings."""

    size: int = Field(ge=1, le=10)
    kind: Literal["ssd", "disk"] = "ssd"


class CloudOptions(Record):
    """Settings of a provider that has many."""

    region: str
    zones: list[str] = []
    volume: Volume | None = None
    tags: dict[str, str] = {}
    spot: bool = False
    share: float = 0.5

    @model_validator(mode="after")
    def _zones_lie_in_the_region(self) -> "CloudOptions":
        if any(not zone.startswith(self.region) for zone in self.zones):
            raise ValueError("every zone must lie in the region")
        return self


class Fake:
    """A provider of which only the part is asked that reads the job file."""

    def __init__(self, options: type[Record], most: int = 4096) -> None:
        self.Options = options
        self._most = most

    def check(self, mesh: MeshSpec) -> Iterable[Problem]:
        """Refuse meshes that are too large, and warn of GPUs."""
        if mesh.hosts > self._most:
            yield Problem("too many hosts here", f"`{mesh.name}` asks for {mesh.hosts}.")
        if mesh.resources.gpus:
            yield Problem("no GPUs here", is_warning=True)


class Broken(dict[str, Provider]):
    """A catalogue of which one provider cannot be imported."""

    def __getitem__(self, name: str) -> Provider:
        if name == "broken":
            raise InfraError("provider cannot be loaded", "The provider `broken` needs a package.")
        return super().__getitem__(name)


def providers() -> Mapping[str, Provider]:
    fakes: dict[str, Any] = {"broken": None, "cloud": Fake(CloudOptions, most=100), "local": Fake(NoOptions)}
    return Broken(cast(dict[str, Provider], fakes))


@pytest.fixture(scope="session")
def catalogue() -> Mapping[str, Provider]:
    """Return the fake providers by name."""
    return providers()


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a job file."""

    def written(text: str | bytes, name: str = "llama/job.yaml") -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    return written


@pytest.fixture
def read(write: Write, catalogue: Mapping[str, Provider]) -> Load:
    """Return a function that loads a job file from its text."""

    def loaded(text: str | bytes, target: str = "local", name: str = "llama/job.yaml") -> Loaded:
        return load(write(text, name), target, python="3.11", monarch="0.7.0", catalogue=catalogue)

    return loaded


@pytest.fixture
def validate(write: Write, catalogue: Mapping[str, Provider]) -> Check:
    """Return a function that checks a job file from its text."""

    def checked(text: str | bytes, name: str = "llama/job.yaml") -> Report:
        return check(write(text, name), catalogue=catalogue)

    return checked


@pytest.fixture
def refused(read: Load) -> Callable[..., list[tuple[int, int, str]]]:
    """Return a function from a job file's text to line, column and summary of what is wrong with it."""

    def problems(text: str | bytes, target: str = "local") -> list[tuple[int, int, str]]:
        with pytest.raises(SpecError) as caught:
            read(text, target)
        return [(p.where.line, p.where.column, p.summary) for p in caught.value.problems if p.where]

    return problems
