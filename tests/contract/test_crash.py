"""Killed anywhere, the next apply finishes: nothing lost, nothing doubled, nothing orphaned, nothing asked."""

import os
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from contract import crashing
from contract.crashing import Place, World
from monarch_infra.model import ranges

IS_SOAK = bool(os.environ.get("MONARCH_INFRA_SOAK"))
"""`make soak` kills everybody at every point; the tests kill us at all that matter and sample the rest."""

CHANGING = ("make", "remove", "prepare", "clear", "Create HostGroup", "Update HostGroup", "Delete")
"""Parts of the names of points around which the world or the state changes."""

FIRST = "{a: 3, b: 2}"
NEXT = "{a: {hosts: 4, env: {X: '1'}}, b: 1, c: 1}"
AFTER_FIRST = {"a": 3, "b": 2}
AFTER_NEXT = {"a": 4, "b": 1, "c": 1}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "job").mkdir()
    return Place(tmp_path / "job" / "job.yaml", "files")


def anew(place: Place, prepared: Path) -> None:
    """Begin again with the directory as *prepared* holds it: at the same path, so that its state fits."""
    directory = place.file.parent
    shutil.rmtree(directory)
    shutil.copytree(prepared, directory, symlinks=True)


def deaths(points: Iterable[str]) -> list[tuple[str, str]]:
    """Return (point, who dies).

    In the soak all three die everywhere.  Else we die at every point where a call may change the world, at the first
    passing of the others, and the engine with or without us at the first call of each kind that changes something.
    """
    own = [point for point in points if "Cancel" not in point]
    if IS_SOAK:
        return [(point, who) for point in own for who in ("us", "engine", "both")]
    chosen = []
    for point in own:
        is_first = point.endswith("#1")
        changes_something = any(verb in point for verb in CHANGING)
        if " in preview" not in point and (is_first or changes_something):
            chosen.append((point, "us"))
        if changes_something and is_first and " in preview" not in point:
            chosen.append((point, "both" if point.startswith("before") else "engine"))
    return chosen


def survive(place: Place, command: str, before: str | None, meshes: str, check: Callable[[World], None]) -> None:
    """Die at each point of a command; each time the next apply must give what *check* asks for."""
    prepared = place.file.parent.with_name("prepared")
    if before is not None:
        place.write(before)
        crashing.again(place)
    place.write(meshes)
    shutil.copytree(place.file.parent, prepared, symlinks=True)
    points = crashing.points_of(command, place)
    assert len(points) > 20
    failed = []
    chosen = deaths(points)
    for point, who in chosen:
        anew(place, prepared)
        crashing.die(command, place, point, who)
        try:
            crashing.again(place, destroys=command == "destroy")
            check(crashing.world(place))
            assert crashing.plan(place).is_empty is (command == "apply")
        except Exception as error:  # all points are tried; one that fails must not hide another
            failed.append(f"{who} at {point}: {type(error).__name__}: {error}")
    if IS_SOAK:
        crashing.record(f"{command} from {before} to {meshes}", deaths=len(chosen), failed=len(failed))
    assert not failed, "\n".join(failed)


def test_a_first_apply_is_finished_by_the_next(place: Place) -> None:
    """Hosts that a killed apply had made are adopted, not made again: every host is of the first generation."""

    def check(world: World) -> None:
        world.check(AFTER_FIRST)
        assert {host.generation for host in world.hosts} == {1}

    survive(place, "apply", None, FIRST, check)


def test_a_change_is_finished_by_the_next_apply(place: Place) -> None:
    """Growing, shrinking, restarting and adding a mesh at once, cut off anywhere, ends as if it had not been."""

    def check(world: World) -> None:
        world.check(AFTER_NEXT)
        generations = {(host.mesh, host.rank): host.generation for host in world.hosts}
        assert generations == {("a", 0): 2, ("a", 1): 2, ("a", 2): 2, ("a", 3): 1, ("b", 0): 1, ("c", 0): 1}

    survive(place, "apply", FIRST, NEXT, check)


def test_a_destroy_is_finished_by_the_next(place: Place) -> None:
    """A destroy that was cut off anywhere leaves what the next one removes, and then nothing."""
    survive(place, "destroy", FIRST, FIRST, lambda world: world.check({}))


@pytest.mark.parametrize("point", ["after make#1", "after make#2", "after find#1", "after Create HostGroup#1"])
@pytest.mark.parametrize("ending", ["apply", "destroy"])
def test_a_mesh_taken_out_of_the_file_after_a_death_leaves_nothing(place: Place, point: str, ending: str) -> None:
    """Hosts of a mesh that no state and no file names are strays; they are in the plan, and apply removes them."""
    place.write(FIRST)
    crashing.die("apply", place, point, "us")
    deployment = place.load().state.deployment
    assert deployment is not None
    strays = [host for host in crashing.world(place).hosts if host.mesh == "b"]
    place.write("{a: 3}")

    planned = [change for change in crashing.plan(place).changes if change.mesh == "b"]
    crashing.again(place, destroys=ending == "destroy")

    known = place.load().state.groups
    assert bool(planned) == bool(strays)
    assert ending == "destroy" or set(known) == {"a"}
    crashing.world(place, [deployment.id]).check({"a": 3} if ending == "apply" else {})


def test_deaths_at_random_times(place: Place) -> None:
    """Between the named points lie instructions without a name."""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    place.write(FIRST)
    prepared = place.file.parent.with_name("prepared")
    shutil.copytree(place.file.parent, prepared)
    for _ in range(30 if IS_SOAK else 4):
        anew(place, prepared)
        crashing.die_after("apply", place, chance.uniform(0.1, 1.6))
        crashing.again(place)
        try:
            crashing.world(place).check(AFTER_FIRST)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


def test_real_hosts_survive_the_death_of_their_apply(tmp_path: Path) -> None:
    """The same on processes of this machine: killed around `make`, the same hosts are finished."""
    place = Place(tmp_path / "job.yaml", "local")
    try:
        for point in ("before make#1", "after make#1", "after find#2"):
            place.write("{a: 2}")
            crashing.die("apply", place, point, "us")
            before = crashing.world(place).hosts

            crashing.again(place)

            after = crashing.world(place)
            after.check({"a": 2})
            if before:
                assert {host.provider_id for host in before} == {host.provider_id for host in after.hosts}
            assert ranges(host.rank for host in after.hosts) == "0-1"
            crashing.again(place, destroys=True)
    finally:
        place.write("{a: 2}")
        crashing.again(place, destroys=True)
