"""The engine's lock files: who holds a stack, and whether he still lives.

It removes only the lock of an owner that is certainly dead; never one that it cannot judge.
"""

import json
import os
import re
import socket
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from monarch_infra.engine.workspace import Workspace

CLOCK_SLACK_S = 2.0
"""A lock's time and a process's start are taken from two clocks; a process that is younger by more is another."""


@dataclass(frozen=True)
class Holder:
    """Who made a lock file."""

    file: Path
    user: str
    host: str
    pid: int
    since: datetime

    @property
    def is_dead(self) -> bool:
        """True only where it is certain: on this machine, and the process is gone or another one."""
        if self.host != socket.gethostname():
            return False
        started = _started(self.pid)
        return started is None or started > self.since.timestamp() + CLOCK_SLACK_S

    def __str__(self) -> str:
        since = self.since.astimezone(timezone.utc)
        return f"{self.user}@{self.host}, process {self.pid}, since {since:%Y-%m-%d %H:%M:%SZ}"


def holders(workspace: Workspace) -> list[Holder]:
    """Return who holds the stack's lock now."""
    found = []
    for file in sorted(workspace.locks.glob("*.json")):
        try:
            found.append(_read(file))
        except FileNotFoundError:
            continue  # released meanwhile
    return found


def _read(file: Path) -> Holder:
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        # The engine's own time zone, in nanoseconds; Python 3.10 reads neither those nor a `Z`.
        since = datetime.fromisoformat(re.sub(r"\.\d+", "", raw["timestamp"]).replace("Z", "+00:00"))
        return Holder(file, raw["username"], raw["hostname"], int(raw["pid"]), since)
    except (ValueError, KeyError, TypeError):
        written = datetime.fromtimestamp(file.stat().st_mtime, timezone.utc)
        return Holder(file, "somebody", f"an unknown machine ({file} cannot be read)", 0, written)


def release_dead(workspace: Workspace) -> list[Holder]:
    """Remove the locks of dead owners; return who is left."""
    found = holders(workspace)
    left = [holder for holder in found if not holder.is_dead]
    if not left:
        for holder in found:
            holder.file.unlink(missing_ok=True)
            for draft in workspace.state_file.parent.glob(f"{workspace.state_file.name}*.tmp"):
                draft.unlink(missing_ok=True)  # it died while it wrote the state, which is renamed into place
    return left


def _started(pid: int) -> float | None:
    """Return when a process of this machine started, or None where it does not run.  A zombie does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in "ZX":
        return None
    return int(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
