"""What an end-to-end test types with: the installed command in a directory of its own, and what it leaves behind.

It knows the product by its command line only; nothing of it is imported here.
"""

import fcntl
import json
import os
import pty
import re
import secrets
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

BIN = Path(sys.executable).parent
TOP = Path(__file__).parents[2]
FILES_LAB = TOP / "tests" / "labs" / "files"

LIMIT_S = 120.0
"""The longest command here takes 6 s alone; other tests may have the processors."""

MARK = "MONARCH_INFRA_E2E"
"""A variable that everything a test starts inherits, and hosts do not: what bears it is a process on the client."""

KEPT = ("MONARCH_INFRA_CACHE", "XDG_CACHE_HOME", "HOME", "TMPDIR", "USER")
"""Of the environment of the test run; everything else that a command sees is said here."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return stdout as the one document it is."""
        return json.loads(self.out)


def until(value: Callable[[], Value], limit_s: float = LIMIT_S) -> Value:
    """Return *value()* as soon as it is true."""
    end = time.monotonic() + limit_s
    while not (found := value()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
    return found


class Shell:
    """A directory, and commands typed in it."""

    def __init__(self, path: Path, bin_folder: Path = BIN, **env: str) -> None:
        self.path = path
        self.mark = secrets.token_hex(8)
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        search = f"{bin_folder}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin"
        self.env = {**kept, "PATH": search, "LANG": "C.UTF-8", "TERM": "xterm", MARK: self.mark, **env}

    def __call__(self, *words: str, code: int = 0, cwd: Path | None = None, env: Mapping[str, str] = {}) -> Done:
        """Type `monarch-infra WORDS`, with nobody to answer questions, and expect an exit code."""
        return self.run("monarch-infra", *words, code=code, cwd=cwd, env=env)

    def run(self, *words: str, code: int | None = 0, cwd: Path | None = None, env: Mapping[str, str] = {}) -> Done:
        """Run any command; *code* None accepts every exit code."""
        ended = subprocess.run(
            self._found(words),
            cwd=cwd or self.path,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=LIMIT_S,
        )
        done = Done(words, ended.returncode, ended.stdout, ended.stderr)
        assert code is None or done.code == code, f"{' '.join(words)}: exit {done.code}\n{done.out}{done.err}"
        assert "Traceback" not in done.err, done.err
        return done

    def bash(self, line: str, *, code: int | None = 0, cwd: Path | None = None) -> Done:
        """Type a line as it is printed, for a shell to take apart."""
        return self.run("bash", "-c", line, code=code, cwd=cwd)

    def write(self, text: str, name: str = "job.yaml") -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def terminal(self, *words: str) -> "Terminal":
        return Terminal(self._found(words), self.path, self.env)

    def client(self, code: str, *arguments: str, cwd: Path | None = None) -> "Client":
        return Client(code, arguments, cwd or self.path, self.env)

    def python(self, code: str, *arguments: str, cwd: Path | None = None) -> Any:
        """Run a client to its end and return the JSON it printed last."""
        done = self.run("python", "-c", CLIENT + code, *arguments, cwd=cwd)
        return json.loads(done.out.splitlines()[-1])

    # --- what runs ----------------------------------------------------------------------------------

    def hosts(self) -> dict[str, int]:
        """Return host directory (`mesh/rank.generation`) -> pid of its process, from the machine's process table."""
        found = {}
        for pid, words in commands():
            folder = next((w for w in words if w.startswith(f"{self.path}/") and "/hosts/" in w), None)
            if folder and any(word.endswith("worker.py") for word in words):
                found["/".join(Path(folder).parts[-2:])] = pid
        return dict(sorted(found.items()))

    def clients(self) -> list[int]:
        """Return the processes that commands typed here have left on this machine; hosts are none."""
        own = set(self.hosts().values())
        return [pid for pid in pids() if pid not in own and (self._bears_mark(pid) or self._works_here(pid))]

    def end(self) -> None:
        """Destroy every job that was applied under this directory, and see that nothing runs on."""
        for state in self.path.rglob(".monarch-infra"):
            for file in sorted(state.parent.glob("*.y*ml")):
                if self.hosts():
                    self.run("monarch-infra", "destroy", "--yes", str(file), code=None)
        left = {**self.hosts(), **{f"client {pid}": pid for pid in self.clients()}}
        for pid in left.values():
            os.kill(pid, signal.SIGKILL)
        assert left == {}, f"still running at the end of the test: {left}"

    def _found(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return *words* with the command looked up on the PATH of this shell, not of the test run."""
        return (shutil.which(words[0], path=self.env["PATH"]) or words[0], *words[1:])

    def _bears_mark(self, pid: int) -> bool:
        return f"{MARK}={self.mark}".encode() in read(pid, "environ").split(b"\0")

    def _works_here(self, pid: int) -> bool:
        try:
            return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(self.path) and not self._is_of_a_host(pid)
        except OSError:
            return False

    def _is_of_a_host(self, pid: int) -> bool:
        """Say whether a host started *pid*: procs of Monarch live a moment longer than the client that asked."""
        hosts = set(self.hosts().values())
        while pid > 1:
            if pid in hosts:
                return True
            stat = read(pid, "stat").rpartition(b")")[2].split()
            pid = int(stat[1]) if stat else 0
        return False


class Terminal:
    """A command on a terminal of its own, with somebody who reads and types."""

    def __init__(self, words: tuple[str, ...], path: Path, env: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        self._child = subprocess.Popen(
            words,
            cwd=path,
            env=dict(env),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            # The terminal is the command's own, so what is left in its session when it ends is hung up, as at a desk.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.seen = ""

    def read_until(self, text: str) -> None:
        """Wait until *text* stands on the screen."""
        end = time.monotonic() + LIMIT_S
        while text not in self.seen:
            assert self._read(end), f"never saw {text!r} in:\n{self.seen}"

    def type(self, line: str) -> None:
        os.write(self._master, f"{line}\n".encode())

    def end(self, code: int = 0) -> str:
        """Wait for the command's end and return all that stood on the screen, without colours."""
        end = time.monotonic() + LIMIT_S
        while self._read(end):
            pass
        found = self._child.wait(LIMIT_S)
        os.close(self._master)
        assert found == code, self.seen
        return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", self.seen).replace("\r\n", "\n")

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"nothing more was printed after:\n{self.seen}"
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # Linux's way of saying that the other side has closed
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)


CLIENT = """
import json, os, sys
from monarch.actor import Actor, endpoint
from monarch_infra import InfraJob

class Counter(Actor):
    def __init__(self):
        self.value = 0
    @endpoint
    def add(self):
        self.value += 1
        return self.value, os.getppid()
    @endpoint
    def env(self, name):
        return os.environ.get(name)

def count(actors):
    return [said for _, said in actors.add.call().get(timeout=60)]

def tell(value):
    print(json.dumps(value), flush=True)

def wait():
    sys.stdin.readline()

"""
"""How the programs of these tests begin: an actor that counts its calls and tells the pid of its host's worker."""


class Client:
    """A Monarch program that runs on while other commands are typed; it prints JSON lines and waits for lines."""

    def __init__(self, code: str, arguments: tuple[str, ...], path: Path, env: Mapping[str, str]) -> None:
        self._errors = (path / f"client-{secrets.token_hex(4)}.err").open("w+")
        self._child = subprocess.Popen(
            [shutil.which("python", path=env["PATH"]) or "python", "-u", "-c", CLIENT + code, *arguments],
            cwd=path,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def says(self) -> Any:
        """Return the next JSON line."""
        assert self._child.stdout is not None
        ready, _, _ = select.select([self._child.stdout], [], [], LIMIT_S)
        line = self._child.stdout.readline() if ready else ""
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"the client said nothing more; its errors:\n{self._errors.read()}")
        return json.loads(line)

    def go_on(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()

    def kill(self) -> None:
        self._child.kill()
        self._close()

    def end(self) -> None:
        assert self._child.wait(LIMIT_S) == 0
        self._close()

    def _close(self) -> None:
        self._child.wait(LIMIT_S)
        for stream in (self._child.stdin, self._child.stdout, self._errors):
            assert stream is not None
            stream.close()


# --- the machine's process table --------------------------------------------------------------------


def pids() -> list[int]:
    return sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal() and is_alive(entry))


def is_alive(entry: Path) -> bool:
    return read(int(entry.name), "stat").rpartition(b")")[2].split()[:1] not in ([], [b"Z"])


def read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def commands() -> Iterator[tuple[int, list[str]]]:
    for pid in pids():
        yield pid, read(pid, "cmdline").decode(errors="replace").split("\0")


def listening(of: set[int]) -> dict[int, list[str]]:
    """Return pid -> the addresses, in the kernel's hexadecimal, on which it accepts TCP connections."""
    sockets = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                sockets[f"socket:[{fields[9]}]"] = fields[1]
    found: dict[int, list[str]] = {}
    for pid in of:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                name = os.readlink(descriptor)
            except OSError:
                continue
            if name in sockets:
                found.setdefault(pid, []).append(sockets[name])
    return found
