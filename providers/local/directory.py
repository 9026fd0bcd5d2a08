"""The directory of one local host: its name, its files and its lock.  Starts and ends no process.

    <home>/hosts/<mesh>/<rank>.<generation>/
        lock          whoever holds it is the host (or is starting or removing it)
        host.json     whose host it is and what it is made from; written before its process is started
        worker.json   pid, address and identity; written by the process itself as its first act
        worker.log    what the process and the actors on it print

The lock is an flock.  It belongs to the open file, not to a process: the launcher takes it and hands the open
file to the process it starts, so there is no moment between the two in which nobody holds it.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HOSTS = "hosts"
LOCK = "lock"
HOST = "host.json"
WORKER = "worker.json"
LOG = "worker.log"

GONE = ".gone-"
"""What a directory is renamed to before its files are deleted: no reader ever sees half a host."""

POLL_S = 0.01
"""How often a held lock is asked again; an idle flock costs about a microsecond."""

LOG_TAIL_BYTES = 4096
"""Enough for the last line of any traceback."""


def of(home: Path, mesh: str, rank: int, generation: int) -> Path:
    """Return where the host at *rank* of *mesh* has its directory."""
    return home / HOSTS / mesh / f"{rank}.{generation}"


def place(path: Path) -> tuple[str, int, int] | None:
    """Return the mesh, rank and generation that *path* stands for; None if it is no host's directory."""
    rank, _, generation = path.name.partition(".")
    if not (rank.isdecimal() and generation.isdecimal()):
        return None
    return path.parent.name, int(rank), int(generation)


def found(home: Path) -> Iterator[Path]:
    """Give the directories of all hosts under *home*, also those that were only intended."""
    for mesh in _listed(home / HOSTS):
        for path in _listed(mesh):
            if place(path) is not None:
                yield path


def gone(home: Path) -> Iterator[Path]:
    """Give what is left of directories whose removal was cut short."""
    for mesh in _listed(home / HOSTS):
        yield from (path for path in _listed(mesh) if path.name.startswith(GONE))


def take(path: Path, *, wait_s: float, makes: bool) -> int | None:
    """Return a descriptor that holds the lock of *path*.

    Returns None if another process still holds it after *wait_s*, or if there is no directory and *makes* is false.
    Closing the descriptor gives the lock back, unless a process was started with it.
    """
    until = time.monotonic() + wait_s
    while True:
        try:
            if makes:
                path.mkdir(parents=True, exist_ok=True)
            held = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            if makes:
                continue  # removed under our feet: make it again
            return None
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            if time.monotonic() >= until:
                return None
            time.sleep(POLL_S)
            continue
        except BaseException:
            os.close(held)
            raise
        if _is_at(held, path / LOCK):
            return held
        os.close(held)  # the directory was removed, and maybe made again, while we waited


def is_held(path: Path) -> bool:
    """Return true if a process holds the lock of *path*.

    Asking takes a shared lock for a moment, so `take` does not believe its first refusal.
    """
    try:
        asked = os.open(path / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(asked, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(asked)
    return False


def read(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in the file *path*; None if there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write(path: Path, value: dict[str, Any]) -> None:
    """Write *value* to the file *path*; a reader sees all of it or nothing."""
    part = path.with_name(f".{path.name}")
    part.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def last_words(path: Path, *, but: str) -> str:
    """Return the last line in the log of *path* that does not begin with *but*; empty if it said nothing else."""
    try:
        with (path / LOG).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            lines = log.read().decode("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip() and not line.startswith(but)), "")


def was_started(path: Path) -> bool:
    """Return true if a process was ever started in *path*, and lived long enough to say so."""
    try:
        return (path / WORKER).exists() or (path / LOG).stat().st_size > 0
    except FileNotFoundError:
        return False


def delete(path: Path) -> None:
    """Delete *path*, whose lock the caller holds."""
    away = path.with_name(f"{GONE}{path.name}")
    shutil.rmtree(away, ignore_errors=True)
    path.rename(away)
    shutil.rmtree(away)


def _listed(path: Path) -> list[Path]:
    try:
        return sorted(child for child in path.iterdir() if child.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
