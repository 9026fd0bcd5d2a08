"""What a provider promises, and how one is found by its name.

Nothing in `monarch_infra` names a provider: the shipped ones are the folders of `monarch_infra.providers`,
other people's register a module under the entry point group `monarch_infra.providers`.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
import pkgutil
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from types import ModuleType
from typing import ClassVar, Protocol

from monarch_infra.model import Boot, Diff, Ground, Host, Made, MeshSpec, Record, Site, Verdict
from monarch_infra.problem import EngineError, Problem

GROUP = "monarch_infra.providers"
"""Entry point group; also the package that holds the shipped providers."""
STACKS = "monarch_infra.stacks"
"""The same for the modules that compile a job into a provider's part of the stack."""

Address = tuple[str, int]


class Provider(Protocol):
    """A kind of place hosts come from.

    The promises, each held by `tests/contract`:

    - `check` and `diff` read nothing but their arguments, so a plan can be made offline.
    - `preflight` and `find` only read.  `find` gives every host of the deployment, also one that an interrupted
      `make` left behind, with mesh, rank and generation from the host's own tags: one call for all meshes.
    - `prepare`, `remove` and `clear` may be run twice; removing what does not exist is not an error.
    - `make` asks once for hosts at these ranks and generations and returns without waiting for capacity or boot.
      It may give fewer and then says why.  Asked again for the same {rank: generation}, it makes no second host.
    """

    Options: type[Record]
    """What a job file may say under the provider's name, for the target or for one mesh."""
    ignores: ClassVar[frozenset[str]]
    """Settings it cannot honour, as paths such as `resources.fabric`; the plan names them in one line."""
    is_free: ClassVar[bool]
    """Its hosts cost nothing, so `InfraJob.state()` may make them without being asked to."""

    def check(self, mesh: MeshSpec) -> Iterable[Problem]: ...
    def diff(self, old: MeshSpec, new: MeshSpec) -> Diff: ...
    def preflight(self, site: Site, asked: Mapping[str, int]) -> Iterable[Verdict]: ...
    def find(self, site: Site) -> list[Host]: ...
    def prepare(self, site: Site, boot: Boot) -> Ground: ...
    def make(self, mesh: MeshSpec, ranks: Mapping[int, int], ground: Ground, boot: Boot) -> Made: ...
    def remove(self, mesh: str, hosts: Iterable[Host]) -> None: ...
    def clear(self, site: Site) -> list[str]: ...
    def reach(self, host: Host, port: int) -> AbstractContextManager[Address]: ...


def names() -> list[str]:
    """Return the names of all providers, shipped and registered, sorted."""
    package = importlib.import_module(GROUP)
    shipped = {module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg}
    return sorted(shipped | {entry.name for entry in importlib.metadata.entry_points(group=GROUP)})


def find(name: str) -> Provider:
    """Return the provider called *name*.

    Raises:
        KeyError: no provider has that name.
        EngineError: its package cannot be imported.
    """
    module = _module(GROUP, name)
    provider: Provider = module.PROVIDER
    return provider


def stack_module(name: str) -> ModuleType:
    """Return the module that compiles the part of a stack that belongs to the provider *name*."""
    return _module(STACKS, name)


@functools.cache  # asked in every call of the engine, and entry points are read from the files of all packages
def _module(group: str, name: str) -> ModuleType:
    try:
        if importlib.util.find_spec(f"{group}.{name}") is not None:
            return importlib.import_module(f"{group}.{name}")
        for entry in importlib.metadata.entry_points(group=group, name=name):
            module: ModuleType = entry.load()
            return module
    except ImportError as error:
        raise EngineError(
            "provider cannot be loaded",
            f"The provider `{name}` needs a package that is not installed: {error}.",
            hint=f"pip install {error.name}" if error.name else "",
        ) from error
    raise KeyError(name)
