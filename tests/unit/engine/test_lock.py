"""Whose lock it is, and whether its owner still lives."""

import json
import os
import platform
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from monarch_infra.engine import Workspace
from monarch_infra.engine.lock import holders, release_dead

HERE = platform.node()
NO_PID = 1 << 22
"""The kernel's own limit: no process has this number."""
NOW = datetime.now(timezone.utc)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, "llama-test")


def write(workspace: Workspace, *, pid: int = NO_PID, host: str = HERE, since: datetime = NOW, name: str = "a") -> Path:
    """Write a lock as the engine does."""
    workspace.locks.mkdir(parents=True, exist_ok=True)
    file = workspace.locks / f"{name}.json"
    # Go writes its time of the local zone, with nanoseconds.
    stamp = since.strftime("%Y-%m-%dT%H:%M:%S.123456789") + (since.strftime("%z")[:3] + ":00").replace("+00:00", "Z")
    file.write_text(json.dumps({"pid": pid, "username": "ana", "hostname": host, "timestamp": stamp}))
    return file


def test_nobody_holds_what_was_never_locked(workspace: Workspace) -> None:
    """Looking makes nothing."""
    assert holders(workspace) == []
    assert release_dead(workspace) == []


def test_a_holder_is_named_for_a_person(workspace: Workspace) -> None:
    """Who, where, which process, since when."""
    write(workspace, host="elsewhere", pid=77, since=datetime(2026, 11, 18, 12, 0, 1, tzinfo=timezone.utc))

    (holder,) = holders(workspace)

    assert str(holder) == "ana@elsewhere, process 77, since 2026-11-18 12:00:01Z"


def test_a_process_that_is_gone_is_dead(workspace: Workspace) -> None:
    """Its lock is removed, and with it the state that it had half written; the state itself stays."""
    file = write(workspace)
    workspace.state_file.parent.mkdir(parents=True)
    workspace.state_file.write_text("{}")
    draft = workspace.state_file.with_name(workspace.state_file.name + "123.tmp")
    draft.write_text("{")

    assert release_dead(workspace) == []
    assert not file.exists()
    assert not draft.exists()
    assert workspace.state_file.exists()


def test_a_process_that_runs_is_not(workspace: Workspace) -> None:
    """This one took the lock just now."""
    file = write(workspace, pid=os.getpid())

    assert [holder.pid for holder in release_dead(workspace)] == [os.getpid()]
    assert file.exists()


def test_a_process_that_began_after_the_lock_is_another_one(workspace: Workspace) -> None:
    """Numbers of processes are used again."""
    write(workspace, pid=os.getpid(), since=NOW - timedelta(days=30000))

    assert release_dead(workspace) == []


@pytest.mark.parametrize("pid", [NO_PID, os.getpid()])
def test_an_owner_on_another_machine_cannot_be_judged(workspace: Workspace, pid: int) -> None:
    """Its lock is never removed here."""
    file = write(workspace, pid=pid, host="elsewhere", since=NOW - timedelta(days=1000))

    assert len(release_dead(workspace)) == 1
    assert file.exists()


def test_one_living_owner_keeps_all(workspace: Workspace) -> None:
    """Two locks are a race of theirs; who lives is named, and nothing is touched."""
    dead, alive = write(workspace, name="a"), write(workspace, pid=os.getpid(), name="b")

    assert [holder.file for holder in release_dead(workspace)] == [alive]
    assert dead.exists()


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"pid": 1}'])
def test_a_lock_that_cannot_be_read_is_somebodys(workspace: Workspace, text: str) -> None:
    """It is kept, and a person is told which file it is."""
    file = write(workspace)
    file.write_text(text)

    (left,) = release_dead(workspace)

    assert str(file) in str(left)
    assert file.exists()


@pytest.mark.parametrize(
    "hours",
    [
        0,
        -8,
        9,
    ],
)
def test_the_owner_lives_in_any_zone(workspace: Workspace, hours: int) -> None:
    """The engine writes its time with the zone of its machine: west of Greenwich it reads earlier than it is."""
    write(workspace, pid=os.getpid(), since=NOW.astimezone(timezone(timedelta(hours=hours))))

    assert len(release_dead(workspace)) == 1
