"""A job on the files lab: its file, its world and every way to apply it; for the tests of what goes wrong."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from monarch_infra import line
from monarch_infra.model import Applied, Plan

LIMIT_S = 60.0
"""The engine needs two seconds for a command; a machine that builds something else beside takes many times that."""
LOOKS = ("find", "preflight")
"""Calls that change nothing."""


class Lab:
    """One directory with a job file and a world."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "job.yaml"
        self.world = root / "world"
        self.world.mkdir(parents=True, exist_ok=True)

    # --- what is asked for, and how the world behaves -----------------------------------------------

    def write(self, meshes: str, *, ready: str = "30s") -> None:
        """Write the job file with these meshes, in YAML's flow form."""
        self.file.write_text(
            f"version: 1\nname: lab\nmeshes: {meshes}\ntimeouts: {{ready: {ready}}}\n"
            "targets: {lab: {provider: files}}\n"
        )

    def rules(self, **rules: Any) -> None:
        draft = self.world / ".rules"
        draft.write_text(json.dumps(rules))
        draft.rename(self.world / "rules.json")

    # --- in this process ----------------------------------------------------------------------------

    def load(self) -> line.Job:
        return line.load(self.file, "lab")

    def apply(self, **how: Any) -> Applied:
        how = {"approve": lambda plan: True, "asks_first": False, **how}
        return line.apply(self.load(), **how)

    def destroy(self, **how: Any) -> Applied:
        return self.apply(destroys=True, **how)

    def plan(self, **how: Any) -> Plan:
        return line.plan(self.load(), **how)

    # --- as a user ----------------------------------------------------------------------------------

    def command(self, verb: str, *rest: str, **how: Any) -> "subprocess.CompletedProcess[str]":
        """Do a command to its end, with nobody to answer."""
        return subprocess.run(
            [*EXECUTABLE, verb, *rest, "--target", "lab"],
            cwd=self.root,
            env=environment(),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=LIMIT_S,
            **how,
        )

    def follow(self, printed: str) -> int:
        """Do the command that a message ends with, and return its code; who types it is asked nothing."""
        words = next_command(printed).split()
        assert words[0] == "monarch-infra"
        yes = ["--yes"] if words[1] in ("apply", "destroy") else []
        done = subprocess.run(
            [*EXECUTABLE, *words[1:], *yes], cwd=self.root, env=environment(), capture_output=True, timeout=LIMIT_S
        )
        return done.returncode

    @contextmanager
    def running(self, verb: str, *rest: str, on_terminal: bool = False) -> Iterator["Running"]:
        """Give a command that runs, and end it whatever happens."""
        running = Running([*EXECUTABLE, verb, *rest, "--target", "lab"], self.root, on_terminal)
        try:
            yield running
        finally:
            running.end()

    # --- what is there ------------------------------------------------------------------------------

    def hosts(self) -> dict[str, int]:
        """Return `mesh[rank]` -> generation of every host in the world, whosever it is."""
        found: dict[str, int] = {}
        for file in sorted(self.world.glob("*/*/[0-9]*")):
            rank, generation = file.name.split(".")
            name = f"{file.parent.name}[{rank}]"
            assert name not in found, f"{name} twice"
            found[name] = int(generation)
        return found

    def serving(self) -> dict[str, int]:
        """Return `mesh[rank]` -> generation of what the outputs list."""
        outputs = self.load().state.outputs
        meshes = outputs.meshes if outputs else {}
        return {f"{name}[{h.rank}]": h.generation for name, mesh in meshes.items() for h in mesh.hosts}

    def calls(self) -> list[str]:
        """Return the calls so far that change something."""
        log = self.world / "calls.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [call for call in lines if call not in LOOKS]

    def engines(self) -> list[int]:
        """Return the engines that work for this job now."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                is_engine = (entry / "comm").read_text().strip() == "pulumi"
                is_alive = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
                if is_engine and is_alive and Path(os.readlink(entry / "cwd")).parent == self.root.resolve():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def files(self, *folders: str) -> dict[str, bytes]:
        """Return every file under the job's directory with its text; the record of calls is none of its."""
        roots = [self.root / folder for folder in folders] or [self.root]
        return {
            str(file.relative_to(self.root)): file.read_bytes()
            for root in roots
            for file in sorted(root.rglob("*"))
            if file.is_file() and file.name != "calls.log"
        }


EXECUTABLE = [str(Path(sys.executable).with_name("monarch-infra"))]
FILES_LAB = Path(__file__).parents[1] / "labs" / "files"


ON_TERMINAL = [
    sys.executable,
    "-ISc",
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])",
]
"""Makes the terminal its own, so that a Ctrl-C typed on it is a signal, then becomes the command."""


class Running:
    """A command that runs, with a terminal or without."""

    def __init__(self, arguments: list[str], cwd: Path, on_terminal: bool) -> None:
        self.printed = ""
        self._master, slave = pty.openpty() if on_terminal else os.pipe()
        self._is_terminal = on_terminal
        self.process = subprocess.Popen(
            [*(ON_TERMINAL if on_terminal else []), *arguments],
            cwd=cwd,
            env=environment(),
            stdin=slave if on_terminal else subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def signal(self, number: int = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def until(self, value: Callable[[], Any]) -> Any:
        """Read along until *value* is true, and return it."""
        end = time.monotonic() + LIMIT_S
        while not (found := value()):
            assert time.monotonic() < end, f"waited too long; it said:\n{self.printed}"
            if not self._read() and self.process.poll() is not None:
                found = value()
                assert found, f"it ended with {self.process.returncode}; it said:\n{self.printed}"
                return found
        return found

    def says(self, text: str) -> None:
        self.until(lambda: text in self.printed)

    def code(self) -> int:
        """Return the exit code once it has ended."""
        self.until(lambda: self.process.poll() is not None)
        while self._read():
            pass
        assert "Traceback" not in self.printed, self.printed
        return self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    def _read(self) -> bool:
        """Take what it printed in the next moment; False if there was nothing."""
        if not select.select([self._master], [], [], 0.02)[0]:
            return False
        try:
            said = os.read(self._master, 65536)
        except OSError:  # a terminal whose last process has gone
            return False
        self.printed += said.decode(errors="replace").replace("\r\n", "\n")
        return bool(said)


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MONARCH_INFRA_")}
    if cache := os.environ.get("MONARCH_INFRA_CACHE"):
        kept["MONARCH_INFRA_CACHE"] = cache
    return {**kept, "PYTHONPATH": str(FILES_LAB), "NO_COLOR": "1"}


def next_command(printed: str) -> str:
    """Return the one command that a message ends with."""
    lines = [row.removeprefix("next: ") for row in printed.splitlines() if row.startswith("next: ")]
    assert len(lines) == 1, printed
    return lines[0]
