"""Kills at named points: before and after each call of the engine and each verb of a provider.

It lists the points of a command, does the command in a process that dies at one of them, and checks what the next
apply made of it.  Nothing of it is in the product: it stands between the line and the world as `line.Hooks`.
"""

import json
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import grpc

from monarch_infra import line
from monarch_infra import provider as catalogue
from monarch_infra.model import Applied, Host, Plan

_FORKSERVER = multiprocessing.get_context("forkserver")
_FORKSERVER.set_forkserver_preload(["contract.crashing", "monarch_infra.plugin", "monarch_infra.stacks"])
"""Each life begins with everything imported and no thread, so a hundred deaths take minutes and not an hour."""
VERBS = ("preflight", "find", "prepare", "make", "remove", "clear")
QUIET_RPCS = frozenset({"Handshake", "Attach", "GetPluginInfo", "CheckConfig", "DiffConfig", "Check", "Diff"})
"""Calls that neither look at the world nor change it; a death in them is a death before the next one."""


@dataclass(frozen=True)
class Place:
    """A job file on a target."""

    file: Path
    target: str

    def load(self) -> line.Job:
        return line.load(self.file, self.target)

    def write(self, meshes: str) -> None:
        """Write the job file with these meshes, in YAML's flow form."""
        provider = "" if self.target == "local" else f"targets: {{{self.target}: {{provider: {self.target}}}}}\n"
        self.file.write_text(f"version: 1\nmeshes: {meshes}\n{provider}")


class Fuse:
    """Counts the points that a command passes and burns at one of them."""

    def __init__(self, at: str, who: str) -> None:
        self._at, self._who = at, who
        self._count: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.passed: list[str] = []

    def __call__(self, point: str) -> None:
        with self._lock:
            self._count[point] += 1
            numbered = f"{point}#{self._count[point]}"
            self.passed.append(numbered)
        if numbered == self._at:
            self._burn()

    def _burn(self) -> None:
        if self._who in ("engine", "both"):
            for pid in _engines_of(os.getpid()):
                os.kill(pid, signal.SIGKILL)
        if self._who in ("us", "both"):
            os.kill(os.getpid(), signal.SIGKILL)


class Fused:
    """A provider whose verbs pass the fuse before and after."""

    def __init__(self, provider: Any, fuse: Fuse) -> None:
        self._provider, self._fuse = provider, fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._provider, name)
        if name not in VERBS:
            return found

        def verb(*given: Any) -> Any:
            self._fuse(f"before {name}")
            result = found(*given)
            if name == "preflight":
                result = list(result)
            self._fuse(f"after {name}")
            return result

        return verb


class Interceptor(grpc.ServerInterceptor):  # type: ignore[misc]
    """Passes the fuse before and after each call of the engine."""

    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = continuation(details)
        name = details.method.rpartition("/")[2]
        if name in QUIET_RPCS or handler is None:
            return handler

        def call(request: Any, context: Any) -> Any:
            kind = request.urn.split("::")[2].rpartition(":")[2] if hasattr(request, "urn") else ""
            mood = " in preview" if getattr(request, "preview", False) else ""
            self._fuse(f"before {name} {kind}{mood}")
            answer = handler.unary_unary(request, context)
            self._fuse(f"after {name} {kind}{mood}")
            return answer

        return grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )


def run(command: str, job: "Place", fuse: Fuse) -> Applied:
    """Do one command on a job file with a fuse in every joint."""
    hooks = line.Hooks(
        find_provider=lambda name: Fused(catalogue.find(name), fuse),  # type: ignore[arg-type,return-value]
        interceptors=(Interceptor(fuse),),
    )
    return line.apply(
        job.load(), approve=lambda plan: True, asks_first=False, destroys=command == "destroy", hooks=hooks
    )


def points_of(command: str, job: "Place") -> list[str]:
    """Do a command unharmed and return the points it passed, each once and in order."""
    fuse = Fuse("", "")
    run(command, job, fuse)
    return list(dict.fromkeys(fuse.passed))


def die(command: str, job: "Place", at: str, who: str) -> None:
    """Do a command in a process of its own that dies at a point, and see that nothing of it is left."""
    child = _FORKSERVER.Process(target=_live_and_die, args=(command, job, at, who))
    child.start()
    child.join(120)
    if who in ("us", "both"):
        assert child.exitcode == -signal.SIGKILL, f"it did not die at {at}: exit {child.exitcode}"
    await_no_engine(job.file)


def die_after(command: str, job: "Place", seconds: float) -> None:
    """Do a command in a process of its own and kill it after a while, wherever it is; it may have ended."""
    child = _FORKSERVER.Process(target=_live_and_die, args=(command, job, "", ""))
    child.start()
    child.join(seconds)
    child.kill()
    child.join(10)
    await_no_engine(job.file)


def _live_and_die(command: str, job: "Place", at: str, who: str) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)
    run(command, job, Fuse(at, who))


def await_no_engine(file: Path, limit_s: float = 10.0) -> None:
    """Wait until no engine works for this job any more; it must die with us by itself."""
    until = time.monotonic() + limit_s
    while left := [pid for pid in _engines() if _workdir(pid) == file.resolve().parent]:
        assert time.monotonic() < until, f"engines outlive their command: {left}"
        time.sleep(0.02)


def again(job: "Place", *, destroys: bool = False) -> Applied:
    """Do the next apply, as a user would: nothing is asked, nothing is cleaned up first."""
    return line.apply(job.load(), approve=lambda plan: True, asks_first=False, destroys=destroys)


def plan(job: "Place") -> Plan:
    return line.plan(job.load())


def record(what: str, **figures: int) -> None:
    """Append the figures of a soak to bench/soak.jsonl."""
    line_ = {"what": what, **figures, "date": datetime.now(timezone.utc).strftime("%Y-%m-%d")}
    with (Path(__file__).parents[2] / "bench" / "soak.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line_) + "\n")


@dataclass(frozen=True)
class World:
    """What a provider finds of every deployment that a job ever had, by (mesh, rank)."""

    hosts: tuple[Host, ...]

    def check(self, wanted: dict[str, int]) -> None:
        """0 lost, 0 doubled, 0 orphaned."""
        living = Counter((host.mesh, host.rank) for host in self.hosts if host.phase.is_alive)
        expected = {(mesh, rank): 1 for mesh, hosts in wanted.items() for rank in range(hosts)}
        assert dict(living) == expected


def world(place: "Place", deployments: Iterable[str] = ()) -> World:
    """Look at the hosts of the job's deployment, and of others that may have been left."""
    job = place.load()
    provider = catalogue.find(job.spec.provider)
    site = job.site(job.state)
    ids = sorted({site.deployment, *deployments} - {""})
    return World(tuple(host for each in ids for host in provider.find(site.model_copy(update={"deployment": each}))))


def _workdir(pid: int) -> Path | None:
    """Return the directory whose job an engine works for, or None if it has gone."""
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).parent
    except OSError:
        return None


def _engines() -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            comm, state = (
                (entry / "comm").read_text().strip(),
                (entry / "stat").read_text().rsplit(")", 1)[1].split()[0],
            )
        except OSError:
            continue
        if comm == "pulumi" and state not in "ZX":
            found.append(int(entry.name))
    return found


def _engines_of(pid: int) -> list[int]:
    def parent(child: int) -> int:
        try:
            return int(Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            return 0

    return [child for child in _engines() if parent(child) == pid]
