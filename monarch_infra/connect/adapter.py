"""Everything of Monarch that is private or untyped, in one place; a new Monarch release is met here and nowhere else.

Holds no rule of ours.  Importing it loads Monarch (about 0.5 s), so others import it inside functions.
"""

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import monarch.actor
from monarch._src.job import job as _job
from monarch._src.job.job import JobState as MonarchState
from monarch._src.job.job_sidecar import stop_job_sidecar
from monarch.actor import Actor, attach_to_workers, endpoint
from monarch.config import configure
from monarch.job import JobTrait, job_load, job_loads

# It announces "Applying current job" each time a client connects; with us nothing is applied then.
logging.getLogger(_job.__name__).setLevel(logging.WARNING)

__all__ = ["DEFAULT_PATH", "JobState", "JobTrait", "job_load", "job_loads", "stop_job_sidecar"]

DEFAULT_PATH: str = _job.DEFAULT_JOB_PATH
"""Where Monarch keeps a job if nobody says otherwise, relative to the working directory."""


class JobState(MonarchState):  # type: ignore[misc]  # Monarch is untyped
    """The host meshes of a job: `state.trainers`, and `for name in state` over their names."""

    @classmethod
    def over(cls, state: Any) -> "JobState":
        """Return Monarch's *state* as one of ours, with the URLs it carries."""
        ours = cls.__new__(cls)
        ours.__dict__.update(state.__dict__)
        return ours

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def __contains__(self, name: object) -> bool:
        return name in self._hosts

    def __getitem__(self, name: str) -> Any:
        """Return the HostMesh called *name*, also where an attribute of Monarch's has the same name."""
        return self._hosts[name]


def use_transport(url: str) -> None:
    """Let this process listen on *url*; without it Monarch picks a unix socket, which no other host can dial."""
    configure(default_transport=url)


def attach(name: str, workers: list[str]) -> Any:
    """Return the HostMesh over *workers*, given as `<proc id>@<address>` in rank order.

    Connects to none of them yet.
    """
    return attach_to_workers(name=name, ca="trust_all_connections", workers=workers)


def is_current(job: object) -> bool:
    """Return true if *job* is what `monarch apply MODULE.NAME` made the current job of this directory."""
    if not Path(DEFAULT_PATH).is_symlink():
        return False
    try:
        module, _, name = _job._current_spec_file().read_text().strip().rpartition(".")
    except FileNotFoundError:
        return False
    return getattr(sys.modules.get(module), name, None) is job


# --- one real call per host -------------------------------------------------------------------------


def spawn_pingers(mesh: Any) -> tuple[Any, Any]:
    """Return one proc on each host of *mesh* and the actors on them.

    The class is made here and not at the top of the module: Monarch then sends it by value, so a host needs
    Monarch and nothing of ours.
    """

    class Pinger(Actor):  # type: ignore[misc]  # Monarch is untyped
        @endpoint  # type: ignore[untyped-decorator]
        def answer(self) -> dict[str, Any]:
            import importlib.metadata

            return {
                "host": socket.gethostname(),
                "worker_pid": os.getppid(),
                "monarch": importlib.metadata.version("torchmonarch"),
                "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            }

    procs = mesh.spawn_procs(per_host={"ping": 1})
    return procs, procs.spawn("pinger", Pinger)


@contextmanager
def faults_told(tell: Callable[[str], None]) -> Iterator[None]:
    """Let faults that nobody awaits go to *tell*; by itself Monarch ends the client for them."""
    before = monarch.actor.unhandled_fault_hook
    monarch.actor.unhandled_fault_hook = lambda failure: tell(str(failure))
    try:
        yield
    finally:
        monarch.actor.unhandled_fault_hook = before
