"""Getting the engine: what counts as installed, what a release must prove, and what an interrupted install leaves.

The archive's server, the Go that fails and the `pulumi` that prints a version are small real programs; the real build
is what `make test` starts with.
"""

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from monarch_infra.engine import build, install
from monarch_infra.problem import EngineError

PINNED = f"v{install.PULUMI_VERSION}"
WAIT_S = 20.0


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def prints(version: str) -> str:
    return f'[ "$1" = version ] && echo {version}'


def archive(version: str) -> bytes:
    text = f"#!/bin/sh\n{prints(version)}\n".encode()
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        member = tarfile.TarInfo("pulumi/pulumi")
        member.size = len(text)
        member.mode = 0o755
        tar.addfile(member, io.BytesIO(text))
    return file.getvalue()


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the parameter's name upstream
        pass


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, a PATH without any pulumi or Go, and no release that could be verified."""
    monkeypatch.setenv("MONARCH_INFRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("MONARCH_INFRA_RELEASES", raising=False)
    monkeypatch.setattr(install, "CHECKSUMS", {})
    return tmp_path / "cache"


@pytest.fixture
def releases(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that the address of the releases serves."""
    folder = tmp_path / "releases"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("MONARCH_INFRA_RELEASES", f"http://127.0.0.1:{server.server_port}/")
    yield folder
    server.shutdown()
    server.server_close()


def offer(releases: Path, content: bytes, checksum: str, monkeypatch: pytest.MonkeyPatch) -> None:
    system, architecture = install._platform()
    (releases / f"pulumi-{PINNED}-{system}-{architecture}.tar.gz").write_bytes(content)
    monkeypatch.setattr(install, "CHECKSUMS", {(system, architecture): checksum})


def failing_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build_step: str) -> None:
    program(tmp_path / "bin" / "go", f'[ "$1" = env ] && echo go1.26.6 && exit\n{build_step}')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")


def left_in(cache: Path) -> set[str]:
    return {path.name for path in (cache / "engine").iterdir()} - {"lock", "install.log"}


def until(condition: object, what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_cache_dir_is_what_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    monkeypatch.delenv("MONARCH_INFRA_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert install.cache_dir() == Path("/home/ana/.cache/monarch-infra")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert install.cache_dir() == Path("/home/ana/.cache/monarch-infra")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert install.cache_dir() == Path("/scratch/monarch-infra")
    monkeypatch.setenv("MONARCH_INFRA_CACHE", "~/own")
    assert install.cache_dir() == Path("/home/ana/own")


def test_without_an_engine_the_error_says_what_gets_it_and_what_it_costs(cache: Path) -> None:
    assert install.find() is None
    with pytest.raises(EngineError) as caught:
        install.require()
    assert caught.value.code == 13
    assert caught.value.next_command == "monarch-infra engine install"
    assert "6 minutes" in caught.value.problems[0].detail
    assert "5 GB" in caught.value.problems[0].detail
    assert not cache.exists(), "looking for the engine makes nothing"


def test_only_the_pinned_version_on_path_is_used(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "older" / "pulumi", prints("v3.100.0"))
    pinned = program(tmp_path / "pinned" / "pulumi", prints(PINNED))
    monkeypatch.setenv("PATH", f"{tmp_path / 'older'}:/usr/bin:/bin")
    assert install.find() is None
    monkeypatch.setenv("PATH", f"{tmp_path / 'older'}:{pinned.parent}:/usr/bin:/bin")
    assert install.find() == install.require() == pinned
    said: list[str] = []
    assert install.install(said.append) == pinned
    assert said == [f"pulumi {PINNED} is here: {pinned}"]


def test_the_installed_engine_is_not_run_to_be_found(cache: Path) -> None:
    """It was verified before it got its name, and it stands before every command."""
    installed = program(cache / "engine" / f"pulumi-{install.PULUMI_VERSION}" / "pulumi", f"touch {cache}/ran")
    assert install.find() == installed
    assert not (cache / "ran").exists()


def test_a_release_with_the_listed_checksum_is_installed(
    cache: Path, releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = archive(PINNED)
    offer(releases, content, hashlib.sha256(content).hexdigest(), monkeypatch)
    path = install.require()
    assert path == install.find()
    assert install._version(path) == PINNED
    assert left_in(cache) == {f"pulumi-{install.PULUMI_VERSION}"}


def test_a_release_with_another_checksum_is_neither_run_nor_built_around(
    cache: Path, releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(releases, archive(PINNED), "0" * 64, monkeypatch)
    with pytest.raises(EngineError, match="not the one it should be"):
        install.install(lambda line: None)
    assert install.find() is None
    assert left_in(cache) == set()


def test_a_release_of_another_version_is_not_installed(
    cache: Path, releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = archive("v3.260.0")
    offer(releases, content, hashlib.sha256(content).hexdigest(), monkeypatch)
    with pytest.raises(EngineError, match="another version"):
        install.install(lambda line: None)
    assert install.find() is None


def test_an_archive_that_holds_no_engine_is_told_so(
    cache: Path, releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(releases, b"no archive", hashlib.sha256(b"no archive").hexdigest(), monkeypatch)
    with pytest.raises(EngineError, match="cannot be read"):
        install.install(lambda line: None)


def test_a_release_that_cannot_be_fetched_is_built_instead(
    cache: Path, releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "CHECKSUMS", {install._platform(): "0" * 64})
    failing_go(tmp_path, monkeypatch, "echo no compiler today; exit 3")
    said: list[str] = []
    with pytest.raises(EngineError, match="no compiler today") as caught:
        install.install(said.append)
    assert any("cannot be fetched" in line for line in said)
    assert "ended with 3" in caught.value.problems[0].detail
    assert left_in(cache) == set()


def test_while_no_checksum_is_listed_nothing_is_fetched(
    cache: Path, releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_go(tmp_path, monkeypatch, "exit 1")
    said: list[str] = []
    with pytest.raises(EngineError):
        install.install(said.append)
    assert not any("fetching" in line for line in said)


def test_a_go_build_gets_the_pinned_modules_and_is_installed(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Go that writes the binary it is asked for, and refuses modules other than those of go.sum."""
    seen = tmp_path / "seen"
    failing_go(
        tmp_path,
        monkeypatch,
        f'echo "$GOFLAGS $CGO_ENABLED $GOTOOLCHAIN" >{seen}; ls >>{seen}\n'
        'while [ "$1" != -o ]; do shift; done\n'
        f"printf '#!/bin/sh\\necho {PINNED}\\n' >\"$2\"",
    )
    path = install.install(lambda line: None)
    assert path == install.find()
    said = seen.read_text(encoding="utf-8").split()
    assert "-mod=readonly" in said
    assert said[-3:] == ["go.mod", "go.sum", "tools.go"]
    assert left_in(cache) == {f"pulumi-{install.PULUMI_VERSION}"}


def test_too_little_disk_is_told_before_anything_is_fetched(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_go(tmp_path, monkeypatch, f"touch {tmp_path}/built")
    monkeypatch.setattr(build, "BUILD_BYTES", 10**18)
    with pytest.raises(EngineError, match="too little disk"):
        install.install(lambda line: None)
    assert not (tmp_path / "built").exists()


def test_an_install_killed_in_the_middle_leaves_no_engine_and_no_compiler(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = tmp_path / "going"
    failing_go(tmp_path, monkeypatch, f"echo $$ >{going}.new; mv {going}.new {going}; exec sleep 60")
    code = "from monarch_infra.engine import install; install.install(lambda line: None)"
    child = subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ))
    until(going.exists, "the build was never begun")
    compiler = int(going.read_text(encoding="utf-8"))
    child.send_signal(signal.SIGKILL)
    child.wait()
    until(lambda: not _runs(compiler), "the compiler outlives the install that wanted it")
    assert install.find() is None

    failing_go(tmp_path, monkeypatch, "exit 1")
    with pytest.raises(EngineError):
        install.install(lambda line: None)
    assert left_in(cache) == set(), "the next install removes what the killed one left"


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_two_installs_build_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = tmp_path / "builds"
    failing_go(
        tmp_path,
        monkeypatch,
        f'echo once >>{builds}; sleep 1; while [ "$1" != -o ]; do shift; done\n'
        f"printf '#!/bin/sh\\necho {PINNED}\\n' >\"$2\"",
    )
    code = "from monarch_infra.engine import install; install.install(print)"
    first, second = (
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)
    )
    said = [child.communicate(timeout=WAIT_S)[0] for child in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0]
    assert builds.read_text(encoding="utf-8") == "once\n"
    assert any("another install is running" in text for text in said)
