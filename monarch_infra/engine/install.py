"""Gets the engine's binary: the pinned `pulumi`, found, downloaded or built; it never runs an operation with it.

In this order, the first that gives the pinned version wins:

1. the one this module installed before, in `cache_dir()`;
2. a `pulumi` on PATH that prints exactly the pinned version;
3. the official release, if this module lists the SHA-256 of its archive;
4. a build from the Go modules that `pulumi/go.mod` names, with the Go at hand or one fetched for it.

Downloads may happen inside the first command that needs the engine; a build only when it was asked for.
"""

import fcntl
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from monarch_infra.engine.build import BUILD_TIME, DISK, INSTALL_COMMAND, build
from monarch_infra.problem import EngineError

Progress = Callable[[str], None]

PULUMI_VERSION = "3.259.0"
"""The newest engine whose Go modules let one build it; the same as the `pulumi` package's."""

RELEASES = "https://get.pulumi.com/releases/sdk"
"""Where the official archives lie; `MONARCH_INFRA_RELEASES` names a mirror.  The checksum is ours either way."""

CHECKSUMS: dict[tuple[str, str], str] = {}
"""(system, architecture) as the archive's name has them -> SHA-256 of that archive.

Empty on purpose: an entry is written by somebody who computed it from the file, and nobody has yet.
"""

VERSION_TIMEOUT_S = 30.0
"""`pulumi version` takes 0.25 s; a loaded machine gets a hundred times as long."""

DOWNLOAD_TIMEOUT_S = 30.0
"""Without a single byte; a slow download that moves may take as long as it likes."""

CHUNK_BYTES = 1 << 20


def cache_dir() -> Path:
    """Return the directory that holds what was installed once for all jobs of this user."""
    if own := os.environ.get("MONARCH_INFRA_CACHE"):
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is invalid and to be ignored.
    base = Path(shared) if os.path.isabs(shared) else Path.home() / ".cache"
    return base / "monarch-infra"


def find() -> Path | None:
    """Return the pinned engine's binary, or None where there is none yet."""
    # What was verified before it got its name is not run again: this stands before every command.
    installed = _installed()
    if os.access(installed, os.X_OK):
        return installed
    return _on_path()


def require(progress: Progress = lambda line: None) -> Path:
    """Return the pinned engine's binary; fetch the official release if that can be verified, but never build.

    Raises:
        EngineError: there is none, and getting it takes minutes: the error says which command does it.
    """
    if found := find():
        return found
    if _checksum() is not None:
        with _locked(progress):
            if (path := find() or _release(progress)) is not None:
                return path
    raise EngineError(
        "the engine is not installed",
        f"Pulumi v{PULUMI_VERSION} is neither in {_home()} nor on PATH.  "
        f"It is built once for all jobs of this user: {BUILD_TIME}, {DISK}.",
        next_command=INSTALL_COMMAND,
    )


def install(progress: Progress, *, force: bool = False) -> Path:
    """Get the pinned engine and return its binary; with *force* also when there is one.

    `GOMODCACHE` and `GOCACHE`, if the environment names them, are used and kept; what the build makes elsewhere
    is removed.

    Raises:
        EngineError: it could not be got; the end of the output and what to do are in the error.
    """
    if not force and (found := find()):
        progress(f"pulumi v{PULUMI_VERSION} is here: {found}")
        return found
    with _locked(progress):
        if not force and (found := find()):
            progress(f"pulumi v{PULUMI_VERSION} was installed meanwhile: {found}")
            return found
        path = _release(progress) or _built(progress)
    progress(f"pulumi v{PULUMI_VERSION} is installed: {path}")
    return path


# --- where it lies ----------------------------------------------------------------------------------


def _home() -> Path:
    return cache_dir() / "engine"


def _installed() -> Path:
    return _home() / f"pulumi-{PULUMI_VERSION}" / "pulumi"


def _on_path() -> Path | None:
    for folder in os.get_exec_path():
        candidate = os.path.join(folder, "pulumi")
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            stamp = os.stat(candidate).st_mtime_ns
            if _prints_version(candidate, stamp):
                return Path(candidate).absolute()
    return None


@functools.cache
def _prints_version(binary: str, stamp: int) -> bool:
    """Say whether *binary*, as it was at *stamp*, is the pinned version; asking takes 0.25 s, so ask once."""
    return _version(Path(binary)) == f"v{PULUMI_VERSION}"


def _version(binary: Path) -> str:
    # No user's plug-ins and credentials, no log left behind and no word to the outside, for a question about a file.
    with tempfile.TemporaryDirectory(prefix="monarch-infra-") as home:
        try:
            asked = subprocess.run(
                [str(binary), "version"],
                env=os.environ | {"PULUMI_HOME": home, "PULUMI_SKIP_UPDATE_CHECK": "true"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=VERSION_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    return asked.stdout.strip() or asked.stderr.strip()


@contextmanager
def _locked(progress: Progress) -> Iterator[None]:
    """Hold the right to install; a second install waits and then finds what the first one made."""
    try:
        _home().mkdir(parents=True, exist_ok=True)
        lock = open(_home() / "lock", "a+", encoding="utf-8")  # noqa: SIM115 -- closed by the `with` below
    except OSError as error:
        raise EngineError(
            "the engine's directory cannot be written",
            f"{_home()}: {error.strerror}.",
            hint="name another one in MONARCH_INFRA_CACHE",
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            progress(f"another install is running (process {owner}): waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


@contextmanager
def _workbench() -> Iterator[Path]:
    """Give an empty directory on the file system the binary will lie on, and remove it afterwards.

    Call it under the lock: what an earlier install left when it was killed is removed first.
    """
    for leftover in _home().glob("making-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    bench = Path(tempfile.mkdtemp(prefix="making-", dir=_home()))
    try:
        yield bench
    finally:
        shutil.rmtree(bench, ignore_errors=True)


def _settle(made: Path) -> Path:
    """Verify what was made and give it the name under which it is found; a rename is all or nothing."""
    made.chmod(0o755)
    printed = _version(made)
    if printed != f"v{PULUMI_VERSION}":
        raise EngineError(
            "the engine that was made is of another version",
            f"`pulumi version` should print v{PULUMI_VERSION} and printed: {printed or 'nothing'}.",
            hint=f"{INSTALL_COMMAND} --force",
        )
    installed = _installed()
    installed.parent.mkdir(exist_ok=True)
    os.replace(made, installed)
    return installed


def _built(progress: Progress) -> Path:
    with _workbench() as bench:
        return _settle(build(PULUMI_VERSION, bench, progress))


# --- the official release ---------------------------------------------------------------------------


def _platform() -> tuple[str, str]:
    machine = platform.machine().lower()
    architecture = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(machine, machine)
    return platform.system().lower(), architecture


def _checksum() -> str | None:
    return CHECKSUMS.get(_platform())


def _release(progress: Progress) -> Path | None:
    """Install the official release; None where none can be verified or none can be reached."""
    checksum = _checksum()
    if checksum is None:
        return None
    name = f"pulumi-v{PULUMI_VERSION}-{'-'.join(_platform())}.tar.gz"
    url = f"{os.environ.get('MONARCH_INFRA_RELEASES', RELEASES).rstrip('/')}/{name}"
    progress(f"fetching {url}")
    with _workbench() as bench:
        archive = bench / name
        try:
            got = _fetch(url, archive)
        except OSError as error:
            progress(f"the release cannot be fetched ({error}): it has to be built")
            return None
        if got != checksum:
            # Not a reason to build instead: somebody is handing out something else, and a person should know.
            raise EngineError(
                "the engine's archive is not the one it should be",
                f"{url} has the SHA-256 {got}; {checksum} was expected.  Nothing of it was run.",
                hint="look at where it came from; MONARCH_INFRA_RELEASES names another place to fetch it from",
            )
        return _settle(_unpack(archive, bench))


def _fetch(url: str, target: Path) -> str:
    """Save what *url* gives as *target* and return its SHA-256."""
    sha256 = hashlib.sha256()
    with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as answer, target.open("wb") as file:
        while chunk := answer.read(CHUNK_BYTES):
            sha256.update(chunk)
            file.write(chunk)
        missing = answer.length
    if missing:
        raise OSError(f"{missing} bytes before its end, the connection was closed")
    return sha256.hexdigest()


def _unpack(archive: Path, bench: Path) -> Path:
    made = bench / "pulumi"
    try:
        with tarfile.open(archive) as tar:
            # One member, by name and under a name of ours: no path of the archive's own is ever written to.
            member = tar.extractfile("pulumi/pulumi")
            if member is None:
                raise KeyError("pulumi/pulumi is not a file")
            with member, made.open("wb") as file:
                shutil.copyfileobj(member, file, CHUNK_BYTES)
    except (KeyError, tarfile.TarError) as error:
        raise EngineError("the engine's archive cannot be read", f"{archive.name}: {error}.") from error
    return made
