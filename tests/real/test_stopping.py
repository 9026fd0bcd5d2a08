"""Stopped at any moment, nothing is undone and nothing forgotten; what moved under an approval stops it by itself.

A stop is typed on a terminal or sent to the process, as a person or a CI server does.
"""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from monarch_infra.model import Action
from monarch_infra.problem import EXIT_KILLED, PlanStaleError
from real.files_lab import Lab, Running

STOPPED, STALE, LOCKED = 8, 7, 10
CTRL_C = "\x03"
NEVER = 1000
"""Seconds of boot that no test outlasts."""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path / "job")
    lab.write("{a: 2, b: 1}", ready="10m")
    return lab


def whole(lab: Lab) -> bool:
    return set(lab.serving()) == set(lab.hosts()) == {"a[0]", "a[1]", "b[0]"} and lab.plan().is_empty


def at_the_prompt(running: Running) -> None:
    running.says("Type ")


# --- while hosts boot -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_terminal", "stop"),
    [
        pytest.param(True, lambda running: running.type(CTRL_C), id="Ctrl-C on a terminal"),
        pytest.param(False, lambda running: running.signal(signal.SIGINT), id="SIGINT"),
        pytest.param(False, lambda running: running.signal(signal.SIGTERM), id="SIGTERM"),
    ],
)
def test_stopped_once_while_hosts_boot(lab: Lab, on_terminal: bool, stop: Callable[[Running], None]) -> None:
    """Exit 8; nothing is undone, what was made is recorded; the command that is printed finishes the same hosts."""
    lab.rules(boot_s=NEVER)
    with lab.running("apply", "--yes", on_terminal=on_terminal) as running:
        running.until(lambda: len(lab.hosts()) == 3)
        stop(running)
        assert running.code() == STOPPED
    assert lab.engines() == []
    made = lab.hosts()
    assert len(made) == 3
    assert set(lab.load().state.groups) == {"a", "b"}
    lab.rules()
    assert lab.follow(running.printed) == 0
    assert lab.hosts() == made
    assert whole(lab)


def test_stopped_between_two_turns(lab: Lab) -> None:
    """The same where no engine runs and we only watch."""
    lab.rules(boot_s=NEVER)
    with lab.running("apply", "--yes") as running:
        running.until(lambda: len(lab.hosts()) == 3 and lab.load().state.groups.keys() == {"a", "b"})
        running.until(lambda: not lab.engines())
        running.signal()
        assert running.code() == STOPPED
    assert len(lab.hosts()) == 3
    lab.rules()
    assert lab.follow(running.printed) == 0
    assert whole(lab)


def test_stopped_twice_ends_at_once(lab: Lab) -> None:
    """Exit 130 without waiting for anything, no engine stays, and the next apply converges."""
    lab.rules(boot_s=NEVER, slow_s=2.0)  # every call takes a while, so the first stop has something to wait for
    with lab.running("apply", "--yes") as running:
        running.until(lambda: "make" in "".join(lab.calls()))
        running.signal()
        running.says("stopping")
        running.signal()
        assert running.code() == EXIT_KILLED
        running.until(lambda: not lab.engines())
    lab.rules()
    lab.apply()
    assert whole(lab)


def test_a_stop_while_destroying_is_finished_by_destroy(lab: Lab) -> None:
    """The next command after a stopped destroy is destroy, and it leaves nothing."""
    lab.apply()
    lab.rules(slow_s=1.0)
    with lab.running("destroy", "--yes") as running:
        running.until(lambda: any(call.startswith("remove") for call in lab.calls()))
        running.signal()
        code = running.code()
    lab.rules()
    assert code == STOPPED
    assert lab.follow(running.printed) == 0
    assert lab.hosts() == {}
    assert lab.load().state.is_empty


# --- before anything is done ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("no\n", id="no"),
        pytest.param("y\n", id="not quite yes"),
        pytest.param("\x04", id="end of input"),
        pytest.param(CTRL_C, id="Ctrl-C"),
    ],
)
def test_at_the_prompt_anything_but_yes_changes_nothing(lab: Lab, answer: str) -> None:
    """Exit 8 at once, no call that changes something, no file in the directory."""
    before = lab.files()
    with lab.running("apply", on_terminal=True) as running:
        at_the_prompt(running)
        running.type(answer)
        assert running.code() == STOPPED
    assert "Nothing was changed" in running.printed
    assert lab.calls() == []
    assert lab.files() == before


@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_stopped_while_planning(lab: Lab, verb: str) -> None:
    """Nothing was begun, so nothing is changed and no question comes after it; exit 8, no engine stays."""
    lab.apply()
    lab.write("{a: 3}")
    lab.rules(slow_s=2.0)
    before, calls = lab.files(), lab.calls()
    with lab.running(verb, on_terminal=True) as running:
        running.until(lab.engines)
        running.type(CTRL_C)
        assert running.code() == STOPPED
        assert "Type yes" not in running.printed
    assert lab.engines() == []
    assert lab.calls() == calls
    assert lab.files() == before


# --- what was approved is not what would be done ----------------------------------------------------


def lose_a_host(lab: Lab) -> None:
    next(lab.world.glob("*/a/1.1")).unlink()


def apply_elsewhere(lab: Lab) -> None:
    assert lab.command("apply", "--yes").returncode == 0


@pytest.mark.parametrize("moves", [lose_a_host, apply_elsewhere])
def test_an_approval_of_another_world_is_refused(lab: Lab, moves: Callable[[Lab], None]) -> None:
    """X1: a person thinks, the world moves, he says yes: exit 7, 2 to 4 lines of what moved, nothing touched."""
    lab.apply()
    lab.write("{a: 3, b: 1}", ready="10m")
    with lab.running("apply", on_terminal=True) as running:
        at_the_prompt(running)
        moves(lab)
        calls = lab.calls()
        running.type("yes\n")
        assert running.code() == STALE
    assert lab.calls() == calls
    moved = [row for row in running.printed.splitlines() if row.startswith("  ") and "approved" in row]
    assert 1 <= len(moved) <= 4
    assert lab.follow(running.printed) == 0


def test_a_destroy_is_held_to_its_approval_too(lab: Lab) -> None:
    """A mesh that came while the name was being typed is not destroyed unseen."""
    lab.apply()
    with lab.running("destroy", on_terminal=True) as running:
        at_the_prompt(running)
        lab.write("{a: 2, b: 1, c: 1}", ready="10m")
        apply_elsewhere(lab)
        running.type("lab\n")
        assert running.code() == STALE
    assert "c[0]" in running.printed
    assert {"a[0]", "a[1]", "b[0]", "c[0]"} == set(lab.serving())


def test_a_loss_elsewhere_is_no_reason_to_refuse(lab: Lab) -> None:
    """A mesh that the approved plan leaves alone may drift: the plan is done, the loss is in the next one."""
    lab.apply()
    lab.write("{a: 2, b: 2}", ready="10m")

    def lose(plan: object) -> bool:
        lose_a_host(lab)
        return True

    lab.apply(approve=lose, asks_first=True)

    assert {"b[0]", "b[1]"} <= set(lab.serving())
    assert [(change.mesh, change.action) for change in lab.plan().changes] == [("a", Action.REPLACE)]


# --- two at once ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_applies_at_once_one_wins(lab: Lab, is_first: bool) -> None:
    """X1: the other is told that the stack is locked and by whom (10), that its plan is stale (7), or finds nothing
    left to do; never an error of another kind, never a host twice."""
    for turn in range(2):
        if is_first:
            lab.destroy()
            for file in (lab.root / ".monarch-infra").rglob("*"):
                if file.is_file():
                    file.unlink()
        else:
            lab.write(f"{{a: 2, b: {2 + turn}}}")
        with lab.running("apply", "--yes") as one, lab.running("apply", "--yes") as other:
            codes = sorted([one.code(), other.code()])  # what the other prints meanwhile fits its pipe
            said = one.printed + other.printed
            assert codes[0] == 0, said
            assert codes[1] in (0, STALE, LOCKED), said
            if LOCKED in codes:
                assert "Held by" in said
                assert "process" in said or "ended since" in said
        wanted = {mesh.name: mesh.hosts for mesh in lab.load().spec.meshes}
        assert len(lab.hosts()) == sum(wanted.values())
        assert lab.plan().is_empty


def test_an_approval_given_twice_is_used_once(lab: Lab) -> None:
    """Two sessions approve the same plan one after the other: the second finds its work done and is told so."""
    lab.apply()
    lab.write("{a: 4, b: 1}", ready="10m")

    def somebody_else(plan: object) -> bool:
        lab.apply()
        return True

    with pytest.raises(PlanStaleError) as raised:
        lab.apply(approve=somebody_else, asks_first=True)

    assert raised.value.done == ("Nothing was changed.",)
    assert lab.plan().is_empty


def test_the_error_of_a_stop_is_one_document(lab: Lab) -> None:
    """With `--json` stdout holds one document whatever happens, here with code 8 and the next command."""
    lab.rules(boot_s=NEVER)
    with lab.running("apply", "--yes", "--json") as running:
        running.until(lambda: len(lab.hosts()) == 3)
        running.signal()
        assert running.code() == STOPPED
    start = running.printed.index("{\n")
    document, _ = json.JSONDecoder().raw_decode(running.printed[start:])
    assert document["error"]["code"] == STOPPED
    assert document["error"]["next"].startswith("monarch-infra apply")
