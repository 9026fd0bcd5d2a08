"""What one reconciliation makes of a mesh, whatever the hosts do; nothing here waits."""

from collections.abc import Callable
from pathlib import Path

import pytest

from monarch_infra.model import Diff, Ground, Host, HostGroup, MeshSpec, Phase, Reason, Site
from monarch_infra.problem import CapacityError, NotReadyError, PartError, TimedOutError
from monarch_infra.reconcile import GroupFailedError, Progress, Reconciler
from monarch_infra.reconcile.reconciler import _goal
from unit.reconcile.memory import Memory

HERE = Path("nowhere")
NOTHING = HostGroup()
SITE = Site(deployment="d" * 32, job="llama", target="test", provider="memory", home=HERE, workdir=HERE)

RESTART = Diff(restart=(Reason(path="env.LEVEL", old="info", new="debug"),))


def mesh(hosts: int, level: str = "info", **settings: object) -> MeshSpec:
    return MeshSpec(name="trainers", hosts=hosts, env={"LEVEL": level}, **settings)  # type: ignore[arg-type]


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def new(memory: Memory) -> Callable[[], Reconciler]:
    """Return a function that begins an apply: what one apply has asked for, the next may ask for again."""
    return lambda: Reconciler(home=HERE, workdir=HERE, find_provider=lambda name: memory, settle_s=0.0)


@pytest.fixture
def reconciler(new: Callable[[], Reconciler]) -> Reconciler:
    return new()


Turn = Callable[..., HostGroup]


@pytest.fixture
def turn(new: Callable[[], Reconciler]) -> Turn:
    """Return a function that does one turn of the engine on a mesh: look, then converge."""

    def turned(
        asked: MeshSpec, old: MeshSpec | None = None, group: HostGroup = NOTHING, by: Reconciler | None = None
    ) -> HostGroup:
        reconciler = by or new()
        reconciler.begin()
        seen = reconciler.observe(SITE, old, group) if old is not None else group
        return reconciler.converge(SITE, Ground(), old, asked, seen)

    return turned


def failed(act: Callable[[], HostGroup]) -> GroupFailedError:
    with pytest.raises(GroupFailedError) as caught:
        act()
    return caught.value


def listed(group: HostGroup) -> list[str]:
    return [f"{host.rank}.{host.generation}" for host in group.hosts]


# --- making and adopting ----------------------------------------------------------------------------


def test_a_first_turn_makes_all_at_once(memory: Memory, turn: Turn) -> None:
    """One call for the whole mesh, every host of the first generation."""
    made = turn(mesh(3))

    assert memory.changing == ["make 0.1 1.1 2.1"]
    assert listed(made) == ["0.1", "1.1", "2.1"]
    assert made.unfinished == ()
    assert made.generations == (1, 1, 1)


def test_nothing_is_called_where_nothing_is_to_do(memory: Memory, turn: Turn) -> None:
    """A turn over a whole mesh looks and does no more."""
    made = turn(mesh(3))
    memory.calls.clear()

    again = turn(mesh(3), mesh(3), made)

    assert again == made
    assert memory.changing == []


def test_what_was_made_from_the_same_is_adopted(memory: Memory, turn: Turn) -> None:
    """A killed apply left two of three; only the third is made."""
    memory.add(mesh(3), 0, 1)
    memory.add(mesh(3), 2, 1)

    made = turn(mesh(3))

    assert memory.changing == ["make 1.1"]
    assert listed(made) == ["0.1", "1.1", "2.1"]


def test_what_was_made_from_something_else_is_not_adopted(memory: Memory, turn: Turn) -> None:
    """It is replaced by a host of the next generation, and goes after that one has come."""
    memory.add(mesh(1, "debug"), 0, 1)

    made = turn(mesh(1))

    assert memory.changing == ["make 0.2", "remove 0.1"]
    assert listed(made) == ["0.2"]


def test_the_number_of_hosts_is_not_what_a_host_is_made_from(memory: Memory, turn: Turn) -> None:
    """An apply of three was killed, the file says two now: two are adopted and the third goes."""
    for rank in range(3):
        memory.add(mesh(3), rank, 1)

    made = turn(mesh(2))

    assert memory.changing == ["remove 2.1"]
    assert listed(made) == ["0.1", "1.1"]


def test_growing_leaves_the_others_alone(memory: Memory, turn: Turn) -> None:
    """New ranks are made, and nothing else is."""
    made = turn(mesh(4), mesh(2), turn(mesh(2)))

    assert memory.changing == ["make 0.1 1.1", "make 2.1 3.1"]
    assert listed(made) == ["0.1", "1.1", "2.1", "3.1"]


def test_shrinking_removes_the_highest_ranks(memory: Memory, turn: Turn) -> None:
    """Generations of the ranks that went are remembered."""
    made = turn(mesh(1), mesh(3), turn(mesh(3)))

    assert memory.changing[1:] == ["remove 1.1 2.1"]
    assert listed(made) == ["0.1"]
    assert made.generations == (1, 1, 1)


def test_a_rank_that_comes_back_gets_the_next_generation(memory: Memory, turn: Turn) -> None:
    """Also after it was not asked for meanwhile: a live client may still use the old address."""
    small = turn(mesh(1), mesh(2), turn(mesh(2)))

    assert listed(turn(mesh(2), mesh(1), small)) == ["0.1", "1.2"]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_lost_rank_gets_the_next_generation(memory: Memory, turn: Turn, is_known: bool) -> None:
    """Whether its provider still knows the host that ended or not."""
    made = turn(mesh(2))
    if is_known:
        memory.become(1, Phase.ENDED, "out of memory")
    else:
        memory.hosts.pop(("trainers", 1, 1))

    assert listed(turn(mesh(2), mesh(2), made)) == ["0.1", "1.2"]
    assert memory.living == ["0.1", "1.2"]


# --- remaking ---------------------------------------------------------------------------------------


def test_the_new_host_is_held_before_the_old_one_goes(memory: Memory, turn: Turn) -> None:
    """Nothing is removed until every successor listens."""
    memory.change = RESTART
    made = turn(mesh(2))
    memory.born = Phase.BOOTING

    coming = turn(mesh(2, "debug"), mesh(2), made)

    assert memory.changing[1:] == ["make 0.2 1.2"]
    assert memory.living == ["0.1", "0.2", "1.1", "1.2"]
    assert listed(coming) == ["0.1", "1.1"]
    assert coming.surplus == ("0.2", "1.2")


def test_a_remaking_that_was_cut_off_is_finished(memory: Memory, turn: Turn) -> None:
    """Its new hosts are adopted, whatever had come of them, and the old ones go."""
    memory.change = RESTART
    made = turn(mesh(2))
    memory.add(mesh(2, "debug"), 0, 2)

    done = turn(mesh(2, "debug"), mesh(2), made)

    assert memory.changing[1:] == ["make 1.2", "remove 0.1 1.1"]
    assert listed(done) == ["0.2", "1.2"]


def test_a_change_in_place_leaves_the_hosts(memory: Memory, turn: Turn) -> None:
    """A setting that neither restarts nor replaces makes no host, though hosts to come are made from it."""
    made = turn(mesh(2))

    assert listed(turn(mesh(2, "debug"), mesh(2), made)) == ["0.1", "1.1"]
    assert memory.changing[1:] == []


def test_a_host_too_many_goes(memory: Memory, turn: Turn) -> None:
    """The successor of a restart that was taken back is over; the host that serves stays."""
    made = turn(mesh(1))
    memory.add(mesh(1, "debug"), 0, 2)

    again = turn(mesh(1), mesh(1), made)

    assert memory.changing[1:] == ["remove 0.2"]
    assert listed(again) == ["0.1"]


# --- slow hosts -------------------------------------------------------------------------------------


def test_a_host_that_does_not_listen_yet_is_not_listed(memory: Memory, turn: Turn) -> None:
    """The turn ends without an error, with what is on its way named apart."""
    memory.fate = {1: Phase.QUEUED}

    made = turn(mesh(2))

    assert listed(made) == []
    assert [(entry.rank, entry.phase) for entry in made.unfinished] == [(0, Phase.BOOTING), (1, Phase.QUEUED)]
    assert memory.living == ["0.1", "1.1"]


def test_the_next_turn_finishes_without_asking_again(memory: Memory, turn: Turn) -> None:
    """A host that came meanwhile is listed; `make` is called once."""
    memory.fate = {1: Phase.QUEUED}
    made = turn(mesh(2))
    memory.become(1, Phase.READY)

    assert listed(turn(mesh(2), mesh(2), made)) == ["0.1", "1.1"]
    assert memory.changing == ["make 0.1 1.1"]


def test_a_gang_is_listed_whole(memory: Memory, turn: Turn) -> None:
    """While one of the new hosts is awaited none of them serves; those that served before do."""
    made = turn(mesh(1))
    memory.fate = {2: Phase.BOOTING}

    assert listed(turn(mesh(3), mesh(1), made)) == ["0.1"]


def test_progress_counts_those_that_are_waited_for(memory: Memory, reconciler: Reconciler, turn: Turn) -> None:
    """Hosts that served before are no part of it."""
    told: list[Progress] = []
    made = turn(mesh(1))
    reconciler.on_progress = told.append
    memory.fate = {2: Phase.BOOTING}

    turn(mesh(3), mesh(1), made, by=reconciler)

    assert [(p.mesh, p.wanted, dict(p.phases)) for p in told] == [("trainers", 2, {Phase.READY: 1, Phase.BOOTING: 1})]


# --- failing ----------------------------------------------------------------------------------------


def test_a_refused_start_is_rolled_back(memory: Memory, turn: Turn) -> None:
    """One host too few, and nothing of the mesh remains; what stands says so and keeps the generations."""
    memory.capacity = 2

    error = failed(lambda: turn(mesh(3)))

    assert memory.living == []
    assert listed(error.group) == []
    assert error.group.generations == (1, 1)
    assert (error.failure.error, error.failure.ranks, error.failure.reason) == (CapacityError, (2,), "full")
    assert not error.failure.is_part_kept


def test_roll_back_never_touches_what_served_before(memory: Memory, turn: Turn) -> None:
    """Only what this apply asked for is undone."""
    made = turn(mesh(2))
    memory.capacity = 3

    error = failed(lambda: turn(mesh(4), mesh(2), made))

    assert memory.living == ["0.1", "1.1"]
    assert listed(error.group) == ["0.1", "1.1"]


def test_a_refused_remaking_keeps_the_old_hosts(memory: Memory, turn: Turn) -> None:
    """Successors that came go again; the mesh serves as before."""
    memory.change = RESTART
    made = turn(mesh(2))
    memory.capacity = 3

    error = failed(lambda: turn(mesh(2, "debug"), mesh(2), made))

    assert memory.living == ["0.1", "1.1"]
    assert listed(error.group) == ["0.1", "1.1"]


def test_shrinking_that_fails_elsewhere_takes_nothing_away(memory: Memory, turn: Turn) -> None:
    """The ranks that were to go stay until all else is there."""
    memory.change = RESTART
    made = turn(mesh(3))
    memory.capacity = 3

    failed(lambda: turn(mesh(1, "debug"), mesh(3), made))

    assert memory.living == ["0.1", "1.1", "2.1"]


def test_what_answers_is_kept_where_the_mesh_says_so(memory: Memory, turn: Turn) -> None:
    """`on_partial: keep` lists what came; that part stands is its own exit code."""
    memory.capacity = 2

    error = failed(lambda: turn(mesh(3, on_partial="keep")))

    assert memory.living == ["0.1", "1.1"]
    assert listed(error.group) == ["0.1", "1.1"]
    assert [entry.rank for entry in error.group.unfinished] == [2]
    assert error.failure.error is PartError
    assert error.failure.is_part_kept


def test_the_rest_of_a_kept_part_is_made_by_the_next_apply(memory: Memory, turn: Turn) -> None:
    """Another command may ask once more."""
    memory.capacity = 2
    asked = mesh(3, on_partial="keep")
    error = failed(lambda: turn(asked))
    memory.capacity = 3

    assert listed(turn(asked, asked, error.group)) == ["0.1", "1.1", "2.1"]


def test_a_host_that_ends_while_starting_fails_its_mesh(memory: Memory, turn: Turn) -> None:
    """It says how it ended."""
    memory.fate = {1: Phase.ENDED}

    error = failed(lambda: turn(mesh(2)))

    assert (error.failure.error, error.failure.ranks, error.failure.reason) == (NotReadyError, (1,), "it burnt")
    assert memory.living == []


def test_a_host_that_ended_while_starting_is_not_asked_for_again_in_this_apply(
    memory: Memory, reconciler: Reconciler, turn: Turn
) -> None:
    """Else a host that dies at boot would be bought for ever."""
    memory.born = Phase.BOOTING
    made = turn(mesh(2), by=reconciler)
    memory.become(1, Phase.ENDED, "died at boot")

    error = failed(lambda: turn(mesh(2), mesh(2), made, by=reconciler))

    assert [call for call in memory.calls if call.startswith("make")] == ["make 0.1 1.1"]
    assert (error.failure.ranks, error.failure.reason) == ((1,), "died at boot")


@pytest.mark.parametrize(("phase", "kind"), [(Phase.BOOTING, TimedOutError), (Phase.QUEUED, CapacityError)])
def test_giving_up_takes_back_what_does_not_serve(
    memory: Memory, reconciler: Reconciler, turn: Turn, phase: Phase, kind: type[Exception]
) -> None:
    """Its time is over: late hosts go, and with them the gang that waited for them."""
    made = turn(mesh(1), by=reconciler)
    memory.fate = {2: phase}
    made = turn(mesh(3), mesh(1), made, by=reconciler)
    reconciler.giving_up = frozenset({"trainers"})

    error = failed(lambda: turn(mesh(3), mesh(3), made, by=reconciler))

    assert (error.failure.error, error.failure.ranks) == (kind, (2,))
    assert memory.living == ["0.1"]
    assert listed(error.group) == ["0.1"]


def test_who_came_in_time_after_all_serves(memory: Memory, reconciler: Reconciler, turn: Turn) -> None:
    """Giving up looks once more."""
    memory.fate = {1: Phase.QUEUED}
    made = turn(mesh(2), by=reconciler)
    memory.become(1, Phase.READY)
    reconciler.giving_up = frozenset({"trainers"})

    assert listed(turn(mesh(2), mesh(2), made, by=reconciler)) == ["0.1", "1.1"]


def test_a_host_that_dies_between_look_and_turn_is_not_listed_by_its_successor(
    memory: Memory, reconciler: Reconciler, turn: Turn
) -> None:
    """The state may name a host that has ended since; the one made in its place serves once it listens."""
    made = turn(mesh(1))
    memory.hosts.clear()
    memory.born = Phase.BOOTING
    reconciler.begin()

    stands = reconciler.converge(SITE, Ground(), mesh(1), mesh(1), made)

    assert listed(stands) == []


def test_a_refusal_of_all_new_hosts_is_a_refusal(memory: Memory, turn: Turn) -> None:
    """Where nothing of what was asked for came, the cause decides, whatever the mesh says of parts."""
    made = turn(mesh(2))
    memory.capacity = 2

    error = failed(lambda: turn(mesh(4, on_partial="keep"), mesh(2), made))

    assert error.failure.error is CapacityError


def test_a_failure_tells_how_this_host_ended_not_how_its_predecessor_did(memory: Memory, turn: Turn) -> None:
    """The provider may know both."""
    made = turn(mesh(1))
    memory.become(0, Phase.ENDED, "spot interruption")
    memory.fate = {0: Phase.ENDED}

    error = failed(lambda: turn(mesh(1), mesh(1), made))

    assert error.failure.reason == "it burnt"


# --- the whole deployment ---------------------------------------------------------------------------


def test_one_look_serves_all_meshes_of_a_turn(memory: Memory, reconciler: Reconciler) -> None:
    """A thousand meshes cost one call of the provider."""
    reconciler.begin()
    for number in range(10):
        reconciler.observe(SITE, MeshSpec(name=f"mesh{number}", hosts=1), HostGroup())

    assert memory.calls == ["find"]


def test_strays_are_the_hosts_that_no_state_names(memory: Memory, reconciler: Reconciler) -> None:
    """Removing them leaves the meshes of the state and those of the job file."""
    reconciler.read_known = lambda: frozenset({"known"})
    for name in ("known", "asked", "stray"):
        memory.add(MeshSpec(name=name, hosts=1), 0, 1)
    reconciler.begin()

    asked = MeshSpec(name="asked", hosts=1)
    assert {mesh: list(hosts) for mesh, hosts in reconciler.strays(SITE).items()} == {
        "asked": ["0.1"],
        "stray": ["0.1"],
    }
    reconciler.remove_strays(SITE, {"asked": {"hosts": 1, "made_from": asked.made_from}})
    assert {name for name, *_ in memory.hosts} == {"known", "asked"}


def test_removing_a_group_looks_anew(memory: Memory, reconciler: Reconciler, turn: Turn) -> None:
    """A host that came after the last look goes too, and other meshes stay."""
    turn(mesh(1))
    memory.add(mesh(1), 0, 2)
    memory.add(MeshSpec(name="other", hosts=1), 0, 1)

    reconciler.remove_group(SITE, "trainers")

    assert list(memory.hosts) == [("other", 0, 1)]


def test_a_sweep_that_leaves_something_fails(memory: Memory, reconciler: Reconciler) -> None:
    """What could not be removed is named."""
    memory.add(mesh(1), 0, 1)
    reconciler.sweep(SITE)
    assert memory.hosts == {}

    memory.add(mesh(1), 0, 1)
    memory.remove = lambda mesh, hosts: None  # type: ignore[method-assign, assignment]
    with pytest.raises(PartError, match=r"trainers-0\.1"):
        reconciler.sweep(SITE)


# --- the goal ---------------------------------------------------------------------------------------


def goal(
    found: list[Host], stays: dict[int, int], served: set[tuple[int, int]], group: HostGroup
) -> tuple[object, ...]:
    filled, missing = _goal(mesh(2), found, stays, served, group)
    return {rank: host.generation for rank, host in filled.items()}, missing


def test_of_two_hosts_of_a_rank_the_newer_one_is_adopted(memory: Memory) -> None:
    """A rank is filled once."""
    found = [memory.add(mesh(2), 0, 2), memory.add(mesh(2), 0, 1), memory.add(mesh(2), 1, 1)]

    assert goal(found, {}, set(), HostGroup()) == ({0: 2, 1: 1}, {})


def test_a_host_older_than_what_the_rank_has_seen_is_not_adopted(memory: Memory) -> None:
    """Its address may be one that a client of its time still uses."""
    found = [memory.add(mesh(2), 0, 1)]

    assert goal(found, {}, set(), HostGroup(generations=(3,))) == ({}, {0: 4, 1: 1})


def test_a_host_that_serves_and_is_to_be_remade_does_not_fill_its_rank(memory: Memory) -> None:
    """Only its successor does."""
    found = [memory.add(mesh(2), 0, 1), memory.add(mesh(2), 1, 1)]

    assert goal(found, {}, {(0, 1), (1, 1)}, HostGroup()) == ({}, {0: 2, 1: 2})


def test_a_host_that_stays_fills_its_rank_whatever_it_was_made_from(memory: Memory) -> None:
    """A change in place does not remake it."""
    found = [memory.add(mesh(2, "other"), 0, 1)]

    assert goal(found, {0: 1}, {(0, 1)}, HostGroup()) == ({0: 1}, {1: 1})
