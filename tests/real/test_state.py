"""The state: who holds it, what it needs to be read, what it must never show, and that it outlives its releases."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import pytest

from monarch_infra.engine import Workspace, install
from monarch_infra.problem import EngineError, LockedError
from real import golden_state
from real.files_lab import Lab

LOCKED, ENGINE = 10, 13
PEM = "PRIVATE KEY"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path / "job")
    lab.write("{a: 2, b: 1}")
    return lab


def workspace(lab: Lab) -> Workspace:
    return lab.load().workspace


def lock(lab: Lab, pid: int, host: str = "") -> Path:
    """Leave a lock as the engine of this process id would."""
    file = workspace(lab).locks / "0a0a0a0a-0000-4000-8000-000000000000.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    held = {
        "pid": pid,
        "username": "somebody",
        "hostname": host or socket.gethostname(),
        "timestamp": datetime.now(timezone.utc).isoformat(),
    }
    file.write_text(json.dumps(held))
    return file


def dead_pid() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


# --- locks ------------------------------------------------------------------------------------------


def test_the_lock_of_a_dead_process_is_no_obstacle(lab: Lab) -> None:
    """The next apply removes it, and the half-written state that its owner left; nobody is asked."""
    lab.apply()
    left = lock(lab, dead_pid())
    draft = workspace(lab).state_file.with_suffix(".json.123.tmp")
    draft.write_text('{"version": 3, "check')
    lab.write("{a: 3, b: 1}")

    lab.apply()

    assert not left.exists()
    assert not draft.exists()
    assert len(lab.serving()) == 4


@pytest.mark.parametrize("host", ["", "elsewhere.example"])
def test_the_lock_of_anybody_else_is_respected(lab: Lab, host: str) -> None:
    """A live process here, or any process there: exit 10 and its name, nothing touched, the lock stays.  A plan needs
    no lock."""
    lab.apply()
    pid = os.getpid() if not host else dead_pid()
    held = lock(lab, pid, host)
    lab.write("{a: 3, b: 1}")
    before = lab.files()

    with pytest.raises(LockedError, match=f"somebody@{host or socket.gethostname()}, process {pid}"):
        lab.apply()

    assert held.exists()
    assert lab.files() == before
    assert not lab.plan().is_empty


def test_a_lock_that_cannot_be_read_is_respected(lab: Lab) -> None:
    """Who cannot be judged is taken for alive; the message names the file."""
    lab.apply()
    held = lock(lab, 1)
    held.write_text("")
    lab.write("{a: 3, b: 1}")

    with pytest.raises(LockedError, match=held.name):
        lab.apply()

    assert held.exists()


# --- what is missing or broken ----------------------------------------------------------------------


def test_without_its_key_a_state_is_left_alone(lab: Lab) -> None:
    """A state whose key is gone is refused by every command that would write it, and no new key is made."""
    lab.apply()
    key = workspace(lab).key_file
    kept = key.read_text()
    key.unlink()
    lab.write("{a: 3, b: 1}")
    before = lab.files()

    for act in (lab.plan, lab.apply, lab.destroy):
        with pytest.raises(EngineError, match="key"):
            act()

    assert lab.files() == before
    key.write_text(kept)
    lab.apply()
    assert len(lab.serving()) == 4


def test_another_key_is_told_and_changes_nothing(lab: Lab) -> None:
    """The engine's own words about a wrong passphrase reach the user; the world is as it was."""
    lab.apply()
    workspace(lab).key_file.write_text("another")
    lab.write("{a: 3, b: 1}")
    calls = lab.calls()

    with pytest.raises(EngineError, match="passphrase"):
        lab.apply()

    assert lab.calls() == calls


@pytest.mark.parametrize("text", ["", '{"version": 4, "checkpoint": {"sta'])
def test_a_broken_state_names_the_command_that_mends_it(lab: Lab, text: str) -> None:
    """File, backup and command are in the message; the command works, and nothing is made twice after it."""
    lab.apply()
    made = lab.hosts()
    state = workspace(lab).state_file
    state.write_text(text)

    done = lab.command("apply", "--yes")

    assert done.returncode == ENGINE
    assert str(state) in done.stderr
    hint = next(row.removeprefix("hint: ") for row in done.stderr.splitlines() if row.startswith("hint: "))
    assert str(state) + ".bak" in hint
    subprocess.run(hint, shell=True, check=True)
    lab.apply()
    assert lab.serving() == lab.hosts() == made
    assert lab.plan().is_empty


def test_a_state_of_a_newer_engine_is_refused(lab: Lab) -> None:
    """Its format is unknown here: nothing is touched, and it says so."""
    lab.apply()
    state = workspace(lab).state_file
    written = json.loads(state.read_text())
    state.write_text(json.dumps(written | {"version": 99}))
    lab.write("{a: 3, b: 1}")
    calls = lab.calls()

    with pytest.raises(EngineError):
        lab.apply()

    assert lab.calls() == calls


def test_an_engine_of_another_version_is_not_used(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `pulumi` on PATH that is not the pinned one plans nothing: exit 13 with the command that gets the right one."""
    other = tmp_path / "bin" / "pulumi"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho v1.0.0\n")
    other.chmod(0o755)
    monkeypatch.setenv("MONARCH_INFRA_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("PATH", f"{other.parent}{os.pathsep}{os.environ['PATH']}")

    with pytest.raises(EngineError, match=install.PULUMI_VERSION) as raised:
        lab.plan()

    assert "engine install" in raised.value.next_command
    assert lab.calls() == []


# --- where nothing can be written -------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Lab]:
    """A job whose directory of ours is a file system of 32 MB; its world is elsewhere."""
    lab = Lab(tmp_path / "job")
    lab.write("{a: 2}")
    ours = lab.root / ".monarch-infra"
    ours.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", ours], capture_output=True).returncode:
        pytest.skip("a small file system needs root and mount")
    yield lab
    subprocess.run(["umount", "-l", ours], check=True)


def test_on_a_full_disk_nothing_is_begun(small: Lab) -> None:
    """Half a state would be left by an engine that runs out of room: it is refused before anything is touched."""
    filler = small.root / ".monarch-infra" / "filler"
    for left in (0, 4096, 1 << 20):
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        os.truncate(filler, max(0, filler.stat().st_size - left))

        done = small.command("apply", "--yes")

        assert done.returncode == 1, done.stderr
        assert "No space left" in done.stderr or "no room" in done.stderr
        assert small.calls() == []
        filler.unlink()
    assert small.command("apply", "--yes").returncode == 0
    assert small.serving() == small.hosts() == {"a[0]": 1, "a[1]": 1}


def test_a_directory_that_cannot_be_written_still_lets_one_plan(small: Lab) -> None:
    """Plan works over a read-only state; apply is refused with the reason, and nothing is touched."""
    small.apply()
    ours = small.root / ".monarch-infra"
    subprocess.run(["mount", "-o", "remount,ro", ours], check=True)
    small.write("{a: 3}")
    calls = small.calls()

    assert not small.plan().is_empty
    done = small.command("apply", "--yes")

    assert done.returncode not in (0, 255)
    assert "read-only" in done.stderr
    assert small.calls() == calls
    subprocess.run(["mount", "-o", "remount,rw", ours], check=True)
    assert small.command("apply", "--yes").returncode == 0


# --- where it lies, what it shows -------------------------------------------------------------------


def test_a_job_may_move_with_its_directory(lab: Lab, tmp_path: Path) -> None:
    """Nothing recorded depends on the path: the plan after a move is empty, and destroy removes the hosts."""
    lab.apply()
    made = lab.hosts()
    shutil.move(lab.root, tmp_path / "elsewhere" / "deep")
    moved = Lab(tmp_path / "elsewhere" / "deep")
    assert moved.plan().is_empty
    moved.write("{a: 3, b: 1}")
    moved.apply()
    assert moved.hosts() == moved.serving() == made | {"a[2]": 1}
    moved.destroy()
    assert moved.hosts() == {}


def test_no_secret_is_in_clear_anywhere(lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The deployment's key and its authority's are sealed in every file and absent from every output and event."""
    from monarch_infra import trust

    made: list[str] = []
    new_key, new_authority = trust.new_key, trust.new_authority

    def noted_key() -> str:
        made.append(new_key())
        return made[-1]

    def noted_authority(deployment: str) -> object:
        authority = new_authority(deployment)
        made.extend(authority.key.splitlines()[1:3])  # the rest of the text is the public half
        return authority

    monkeypatch.setattr(trust, "new_key", noted_key)
    monkeypatch.setattr(trust, "new_authority", noted_authority)
    events: list[object] = []
    from monarch_infra.engine import command

    heard = command._Events.StreamEvents
    monkeypatch.setattr(
        command._Events,
        "StreamEvents",
        lambda self, requests, context: heard(self, (events.append(r.event) or r for r in requests), context),
    )

    lab.rules(raises={"make": ["part", "stopped in the middle"]})
    with pytest.raises(Exception, match="stopped in the middle"):
        lab.apply()
    lab.rules()
    lab.apply()
    lab.write("{a: 1}")
    lab.apply()
    said = [lab.command(verb).stdout for verb in ("plan", "status", "output")]

    assert len(made) > 2
    assert len(events) > 10
    texts = [file.decode(errors="replace") for file in lab.files().values()] + said + [str(event) for event in events]
    for secret in made:
        assert not [text for text in texts if secret in text]
    assert not [text for text in texts if PEM in text]
    assert workspace(lab).key_file.stat().st_mode & 0o077 == 0


# --- what gathers -----------------------------------------------------------------------------------


def test_what_was_cut_off_leaves_the_state_with_the_next_apply(lab: Lab) -> None:
    """An operation of an engine that died is named in the state only until the next apply is through."""
    lab.rules(slow_s=1.0)
    with lab.running("apply", "--yes") as running:
        running.until(lambda: any(call.startswith("make") for call in lab.calls()))
        running.process.kill()
        running.process.wait()
        running.until(lambda: not lab.engines())
    assert lab.load().state.has_pending
    lab.rules()

    lab.apply()

    assert not lab.load().state.has_pending
    assert lab.serving() == lab.hosts()


def test_nothing_grows_without_bound(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs and past updates are kept in a bounded number; a plan adds none at all."""
    from monarch_infra.engine import workspace as kept

    monkeypatch.setattr(kept, "LOGS_KEPT", 1)
    monkeypatch.setattr(kept, "HISTORY_KEPT", 1)
    lab.apply()
    counts = []
    for turn in range(4):
        lab.write(f"{{a: {2 + turn % 2}, b: 1, c: 1}}")
        lab.apply()
        counts.append(len(lab.files(".monarch-infra")))

    assert counts[-1] == counts[-2] == counts[-3]
    before = lab.files()
    lab.plan()
    assert lab.files() == before


# --- across releases --------------------------------------------------------------------------------


def test_the_state_of_an_earlier_release_is_nobodys_work(tmp_path: Path) -> None:
    """X46: a plan over a state that an earlier release wrote is empty, and apply rewrites nothing."""
    lab = golden_state.restore(tmp_path / "golden")
    before = lab.files()

    assert lab.plan().changes == ()
    assert lab.command("apply", "--yes").returncode == 0

    assert lab.files() == before
    lab.destroy()
    assert lab.hosts() == {}
