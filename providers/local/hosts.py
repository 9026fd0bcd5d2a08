"""Local hosts: made as processes, found by the lock they hold, ended by signal.  Knows nothing of plans and Monarch."""

import contextlib
import importlib.metadata
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from monarch_infra import provider
from monarch_infra.model import (
    Boot,
    Cause,
    Diff,
    Ground,
    Host,
    Made,
    MeshSpec,
    Phase,
    Reason,
    Refusal,
    Site,
    Verdict,
    Worker,
)
from monarch_infra.problem import PartError, Problem
from monarch_infra.providers.local import directory
from monarch_infra.providers.local.reach import LOOPBACK

PROGRAM = Path(provider.__file__).parent / "node" / "worker.py"
"""Started by path: a `python -m` would look for modules in the user's directory before the standard library's."""

PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR")
"""All that a host sees of the operator's environment: no token, proxy or PYTHONPATH of theirs ends up in a job."""

KNOBS = {
    # A worker that keeps undeliverable messages for the default 30 s exits when its client leaves meanwhile.
    "HYPERACTOR_PENDING_ACTOR_DELIVERY_TIMEOUT": "1s",
    # Importing torch in eight processes at once takes longer than the default 30 s on a small machine.
    "HYPERACTOR_HOST_SPAWN_READY_TIMEOUT": "300s",
    "HYPERACTOR_MESH_PROC_SPAWN_MAX_IDLE": "300s",
}

MAKE_WAIT_S = 0.3
"""Longer than a `find` or a `clear` holds a lock, so a refusal after it means that the host lives."""
PROBE_S = 0.5
"""Loopback answers or refuses at once; a full listen queue does neither."""
SAY_PID_S = 10.0
"""From the start of Python to our first line, on a machine that is swapping."""
TERM_S = 5.0
"""A worker ends within 0.3 s of SIGTERM."""
KILL_S = 5.0
"""A killed process ends when the kernel gets to it; only one stuck in a device does not."""
REMOVED_AT_ONCE = 32
"""Threads that wait for processes to end; each only polls a lock."""

SAYS_NOTHING = "Monarch internal logs are being written to "
"""How the line begins that every worker prints at its start."""

WORKER_BYTES = 120 * 2**20
"""Resident memory of an idle worker (measured 113-123 MB); each proc on it takes 180 MB more."""

ALPHABET = "123456789abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ"
"""Base 58 as Monarch writes the number in `service<...>`."""

_children: list[subprocess.Popen[bytes]] = []
"""Hosts that this process started: it has to take their exit status, or they stay as zombies until it ends."""


# --- what a plan needs ------------------------------------------------------------------------------


def check(mesh: MeshSpec) -> Iterator[Problem]:
    """Give what is wrong with *mesh*: a local host runs this Python and this Monarch, no other."""
    for what, asked, here in (
        ("Python", mesh.python, f"{sys.version_info.major}.{sys.version_info.minor}"),
        ("Monarch", mesh.monarch, importlib.metadata.version("torchmonarch")),
    ):
        if asked and asked != here:
            yield Problem(
                summary=f"{what} version not available on this machine",
                detail=f"Mesh `{mesh.name}` asks for {what} {asked}, and local hosts run the one of this command, "
                f"{here}.",
                hint=f"write {here}, leave it out, or run monarch-infra from an environment with {what} {asked}",
            )


def diff(old: MeshSpec, new: MeshSpec) -> Diff:
    """Return what a change of settings means: a process keeps the environment and the Python it was started with.

    Labels and resources have no effect on a process, so changing them is no reason for anything.
    """
    reasons = [
        Reason(path=f"env.{name}", old=old.env.get(name), new=new.env.get(name))
        for name in sorted(old.env.keys() | new.env.keys())
        if old.env.get(name) != new.env.get(name)
    ]
    for path in ("python", "monarch"):
        before, after = getattr(old, path), getattr(new, path)
        if before != after:
            reasons.append(Reason(path=path, old=before or None, new=after or None))
    return Diff(restart=tuple(reasons))


def preflight(site: Site, asked: Mapping[str, int]) -> Iterator[Verdict]:
    """Give what stands in the way: hosts of an earlier life of this job, and memory."""
    foreign: dict[str, int] = {}
    for path in directory.found(site.home):
        owner = (directory.read(path / directory.HOST) or {}).get("deployment")
        if owner and owner != site.deployment and directory.is_held(path):
            foreign[owner] = foreign.get(owner, 0) + 1
    for owner, hosts in sorted(foreign.items()):
        yield Verdict(
            text=f"{_hosts(hosts)} of this job still {'lives' if hosts == 1 else 'live'} under another deployment, "
            f"{owner[:8]}; to remove: monarch-infra destroy --deployment {owner}"
        )
    needed, there = sum(asked.values()) * WORKER_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        yield Verdict(
            text=f"{_hosts(sum(asked.values()))} need about {needed / 2**30:.0f} GiB of memory without any actor; "
            f"this machine has {there / 2**30:.0f} GiB"
        )


def find(site: Site) -> list[Host]:
    """Return every host of the deployment.  What was intended and never started is none."""
    _reap()
    hosts = (_found(path, site.deployment) for path in directory.found(site.home))
    return sorted((host for host in hosts if host), key=lambda host: (host.mesh, host.rank, host.generation))


# --- what an apply does -----------------------------------------------------------------------------


def make(mesh: MeshSpec, ranks: Mapping[int, int], ground: Ground, boot: Boot) -> Made:
    """Start hosts at these {rank: generation}, all at once, and wait for none of them."""
    hosts: list[Host] = []
    refused: list[Refusal] = []
    for rank, generation in sorted(ranks.items()):
        try:
            made = _made(mesh, rank, generation, boot.site)
        except OSError as error:
            made = f"the worker could not be started: {error}"
        if isinstance(made, Host):
            hosts.append(made)
        else:
            refused.append(Refusal(ranks=(rank,), cause=Cause.FAILED, reason=made))
    return Made(hosts=tuple(hosts), refused=tuple(refused))


def remove(mesh: str, hosts: Iterable[Host]) -> None:
    """End these hosts and delete their directories; one that is gone already is fine.

    Raises:
        PartError: a process does not end, or belongs to another machine.
    """
    asked = list(hosts)
    if not asked:
        return
    with ThreadPoolExecutor(max_workers=min(REMOVED_AT_ONCE, len(asked))) as pool:
        left = [reason for reason in pool.map(_removed, asked) if reason]
    _reap()
    if left:
        raise PartError(
            "hosts could not be removed",
            "; ".join(left) + ".",
            done=[f"{len(asked) - len(left)} of {_hosts(len(asked))} of `{mesh}` removed"],
        )


def _made(mesh: MeshSpec, rank: int, generation: int, site: Site) -> Host | str:
    """Return the host at *rank*, started if it never was; or why there is none.

    Killed before the process is started, this leaves a directory that nobody holds, which the next call uses.
    Killed after, it leaves a host: the process got the lock from us and holds it.
    """
    path = directory.of(site.home.absolute(), mesh.name, rank, generation)
    lives = (path / directory.WORKER).exists() and directory.is_held(path)
    lock = None if lives else directory.take(path, wait_s=MAKE_WAIT_S, makes=True)
    if lock is None:
        owner = (directory.read(path / directory.HOST) or {}).get("deployment", site.deployment)
        if owner != site.deployment:
            return f"{path} is a host of deployment {owner[:8]}: monarch-infra destroy --deployment {owner}"
        return _found(path, site.deployment) or f"another command is working on {path}"
    try:
        if directory.was_started(path):
            if ended := _found(path, site.deployment, held=False):
                return ended  # a generation is filled once: its successor is another generation
            for name in (directory.HOST, directory.WORKER, directory.LOG):
                (path / name).unlink(missing_ok=True)  # the remains of another deployment
        return _started(mesh, rank, generation, site, path=path, lock=lock)
    finally:
        os.close(lock)


def _started(mesh: MeshSpec, rank: int, generation: int, site: Site, *, path: Path, lock: int) -> Host:
    with _listener(path) as listener:
        worker = Worker(address=_url(listener), proc_id=_proc_id())
        directory.write(
            path / directory.HOST,
            {
                "deployment": site.deployment,
                "job": site.job,
                "target": site.target,
                "mesh": mesh.name,
                "rank": rank,
                "generation": generation,
                "made_from": mesh.made_from,
                "machine": socket.gethostname(),
                **worker.plain(),
            },
        )
        with (path / directory.LOG).open("ab") as log:
            # No pipe, terminal or session of ours: the host outlives the command and hears none of its signals.
            child = subprocess.Popen(
                [sys.executable, "-u", str(PROGRAM), str(path), str(listener.fileno()), str(lock)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=site.workdir,
                env=_environment(mesh, rank),
                pass_fds=(listener.fileno(), lock),
                start_new_session=True,
            )
    _children.append(child)
    return Host(
        mesh=mesh.name,
        rank=rank,
        generation=generation,
        provider_id=str(path),
        phase=Phase.BOOTING,
        made_from=mesh.made_from,
        worker=worker,
    )


def _listener(path: Path) -> socket.socket:
    """Return a socket on a port that no earlier generation of this rank had, as far as it is still known.

    A client that was connected to a lost worker is of no use to another one at the same address.
    """
    rank = path.name.partition(".")[0]
    used = {(directory.read(other / directory.HOST) or {}).get("address") for other in path.parent.glob(f"{rank}.*")}
    refused: list[socket.socket] = []  # kept open meanwhile, so that the kernel gives another
    try:
        while True:
            listener = socket.socket()
            listener.bind((LOOPBACK, 0))
            if _url(listener) not in used:
                return listener
            refused.append(listener)
    finally:
        for known in refused:
            known.close()


def _url(listener: socket.socket) -> str:
    return f"tcp://{LOOPBACK}:{listener.getsockname()[1]}"


def _environment(mesh: MeshSpec, rank: int) -> dict[str, str]:
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {**passed_on, **KNOBS, "HYPERACTOR_PROCESS_NAME": f"{mesh.name}[{rank}]", **mesh.env}


def _proc_id() -> str:
    """Return an identity for one start of a worker, as Monarch writes it.

    A client that dials an address and meets another identity than it was told does not talk to it.
    """
    number, digits = secrets.randbits(64), ""
    while number or not digits:
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return f"service<{digits}>"


# --- one host ---------------------------------------------------------------------------------------


def _found(path: Path, deployment: str, *, held: bool | None = None) -> Host | None:
    """Return the host in *path*; None if nothing was started there, or for another deployment."""
    label = directory.read(path / directory.HOST)
    if label is None or label.get("deployment") != deployment:
        return None
    if held is None:
        held = directory.is_held(path)
    said = directory.read(path / directory.WORKER)
    if not held and not directory.was_started(path):
        return None
    worker = Worker(address=label["address"], proc_id=label["proc_id"])
    phase = (Phase.READY if said and _answers(worker) else Phase.BOOTING) if held else Phase.ENDED
    mesh, rank, generation = directory.place(path) or ("", 0, 0)
    return Host(
        mesh=mesh,
        rank=rank,
        generation=generation,
        provider_id=str(path),
        phase=phase,
        reason="" if held else _why_ended(path),
        made_from=label.get("made_from", ""),
        worker=worker,
    )


def _answers(worker: Worker) -> bool:
    address, _, port = worker.address.removeprefix("tcp://").rpartition(":")
    try:
        with socket.create_connection((address, int(port)), timeout=PROBE_S):
            return True
    except OSError:
        return False


def _why_ended(path: Path) -> str:
    words = directory.last_words(path, but=SAYS_NOTHING)
    return f"its worker ended; last line of its log: {words}" if words else "its worker ended without a word in its log"


def _removed(host: Host) -> str:
    """End *host* and delete its directory; return why not, empty if it is gone."""
    path, name = Path(host.provider_id), f"{host.mesh}[{host.rank}]"
    if directory.place(path) != (host.mesh, host.rank, host.generation):
        return f"{name}: {path} is not its directory"
    lock = directory.take(path, wait_s=0, makes=False)
    if lock is None and path.exists():
        machine = (directory.read(path / directory.HOST) or {}).get("machine", socket.gethostname())
        if machine != socket.gethostname():
            return f"{name} runs on {machine}: remove it there"
        lock = _ended(path)
        if lock is None and path.exists():
            return f"{name} does not end: {_process(path)} holds {path / directory.LOCK}"
    if lock is not None:
        try:
            directory.delete(path)
        finally:
            os.close(lock)
        with contextlib.suppress(OSError):
            path.parent.rmdir()
    return ""


def _ended(path: Path) -> int | None:
    """End the process that holds *path*, first politely, and return the lock; None if it does not end."""
    until = time.monotonic() + SAY_PID_S
    while (pid := _pid(path)) is None:  # it is being started, or somebody else is removing it
        lock = directory.take(path, wait_s=directory.POLL_S, makes=False)
        if lock is not None or time.monotonic() >= until or not path.exists():
            return lock
    for sent, wait_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
        if not directory.is_held(path):
            break  # never signal a number that may be another process by now
        _signal(pid, sent)
        lock = directory.take(path, wait_s=wait_s, makes=False)
        if lock is not None:
            for left in _session(pid):
                _signal(left, signal.SIGKILL)
            return lock
    return directory.take(path, wait_s=0, makes=False)


def _signal(pid: int, sent: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, sent)


def _session(leader: int) -> list[int]:
    """Return the processes that an ended worker leaves behind: what its actors started stays in its session.

    A number is not given to another process while it is a session's, so these are never somebody else's.
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name of the program stands in parentheses and may hold anything; parent, group, session follow it.
            _, _, _, session = entry.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(session) == leader:
                found.append(int(entry.parent.name))
    return found


def _pid(path: Path) -> int | None:
    said: Any = (directory.read(path / directory.WORKER) or {}).get("pid")
    return said if isinstance(said, int) else None


def _process(path: Path) -> str:
    pid = _pid(path)
    return "some process" if pid is None else f"process {pid}"


def _reap() -> None:
    _children[:] = [child for child in _children if child.poll() is None]


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"
