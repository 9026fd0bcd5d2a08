"""How far the hosts of each mesh are: a live line per mesh on a terminal, else a line when something changes."""

import threading
import time

from monarch_infra.cli.console import Console
from monarch_infra.model import Phase
from monarch_infra.reconcile import Progress

HEARTBEAT_S = 30.0
"""A log that is silent for longer looks like a hang."""

WORDS = {Phase.QUEUED: "queued", Phase.BOOTING: "booting", Phase.ENDED: "ended"}


class ProgressLines:
    """Prints progress to stderr.  Called from the threads of the plug-in."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._lines: dict[str, str] = {}
        self._drawn = 0
        self._last = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        line = _line(progress)
        with self._lock:
            is_due = time.monotonic() - self._last > HEARTBEAT_S
            if self._lines.get(progress.mesh) == line and not is_due:
                return
            self._lines[progress.mesh] = line
            self._last = time.monotonic()
            if self._console.is_live:
                self._draw()
            else:
                self._console.say(f"  {line}\n")

    def _draw(self) -> None:
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        lines = "".join(f"\x1b[2K  {line}\n" for _, line in sorted(self._lines.items()))
        self._drawn = len(self._lines)
        self._console.say(up + lines)


def _line(progress: Progress) -> str:
    ready = progress.phases.get(Phase.READY, 0)
    others = [f"{count} {WORDS[phase]}" for phase, count in sorted(progress.phases.items()) if phase in WORDS]
    asked = progress.wanted - sum(progress.phases.values())
    if asked > 0:
        others.append(f"{asked} asked for")
    return ", ".join([f"{progress.mesh}  {ready} of {progress.wanted} answer", *others])
