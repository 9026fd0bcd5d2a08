"""What differs between a group and what is asked for, and what a look at the world makes of a group."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch_infra.model import Diff, Host, HostGroup, ListedHost, MeshSpec, Phase, Reason, UnfinishedHost, Worker
from monarch_infra.reconcile import Decision, decide, encode, parse, unwanted
from monarch_infra.reconcile.group import generations, listed, observe

ENV = Reason(path="env.LEVEL", old="info", new="debug")
ZONE = Reason(path="options.zone", old="a", new="b")
LABEL = Reason(path="labels.team", old="blue", new="red")

RESTART = Diff(restart=(ENV,))
REPLACE = Diff(replace=(ZONE,))


def mesh(hosts: int, **settings: object) -> MeshSpec:
    return MeshSpec(name="trainers", hosts=hosts, **settings)  # type: ignore[arg-type]


def host(rank: int, generation: int = 1, phase: Phase = Phase.READY, reason: str = "") -> Host:
    return Host(
        mesh="trainers",
        rank=rank,
        generation=generation,
        provider_id=f"{rank}.{generation}",
        phase=phase,
        reason=reason,
        worker=Worker(address=f"tcp://10.0.0.{rank}:26600", proc_id=f"service<{rank}.{generation}>"),
    )


def coming(rank: int, of: MeshSpec) -> UnfinishedHost:
    return UnfinishedHost(rank=rank, generation=1, phase=Phase.BOOTING, made_from=of.made_from)


def whole(hosts: Iterable[Host]) -> HostGroup:
    own = list(hosts)
    return HostGroup(hosts=listed(own), generations=generations(HostGroup(), own))


def serving(count: int) -> HostGroup:
    return whole(host(rank) for rank in range(count))


def ended(rank: int, reason: str = "gone") -> UnfinishedHost:
    return UnfinishedHost(rank=rank, generation=1, phase=Phase.ENDED, reason=reason)


# --- decide -----------------------------------------------------------------------------------------


def test_nothing_differs_where_nothing_was_changed() -> None:
    """A whole group that is asked for as it is needs nothing."""
    assert decide(mesh(3), mesh(3), serving(3), Diff()).is_empty


@pytest.mark.parametrize(
    ("old", "new", "group", "change", "touched"),
    [
        pytest.param(2, 4, serving(2), Diff(), {"made": {2, 3}}, id="grow"),
        pytest.param(4, 1, serving(4), Diff(), {"removed": {1, 2, 3}}, id="shrink"),
        pytest.param(2, 2, serving(2), RESTART, {"restarted": {0, 1}}, id="restart"),
        pytest.param(2, 2, serving(2), REPLACE, {"replaced": {0, 1}}, id="replace"),
        pytest.param(
            2, 2, serving(2), Diff(restart=(ENV,), replace=(ZONE,)), {"replaced": {0, 1}}, id="replacing restarts too"
        ),
        pytest.param(
            2, 3, serving(2), RESTART, {"restarted": {0, 1}, "made": {2}}, id="new hosts have nothing to restart"
        ),
        pytest.param(3, 1, serving(3), RESTART, {"restarted": {0}, "removed": {1, 2}}, id="no restart of what goes"),
    ],
)
def test_each_change_touches_its_ranks(
    old: int, new: int, group: HostGroup, change: Diff, touched: dict[str, set[int]]
) -> None:
    """Growing and shrinking leave the others alone; a setting touches all that serve and stay."""
    assert decide(mesh(old), mesh(new), group, change).touched == touched


def test_a_rank_that_served_and_is_gone_is_lost() -> None:
    """It is told from one that was never made, and from one whose host is on its way."""
    group = HostGroup(
        hosts=listed([host(0)]),
        unfinished=(ended(1), coming(2, mesh(4)), UnfinishedHost(rank=3)),
    )

    decision = decide(mesh(4), mesh(4), group, Diff())

    assert decision.touched == {"lost": {1}, "finished": {2}, "made": {3}}


def test_a_host_on_its_way_that_was_made_from_something_else_is_replaced() -> None:
    """The file was edited while it was queued: it is not what is asked for now."""
    group = HostGroup(unfinished=(coming(0, mesh(2, env={"A": "1"})), coming(1, mesh(2, env={"A": "2"}))))

    decision = decide(mesh(2), mesh(2, env={"A": "2"}), group, Diff())

    assert decision.touched == {"replaced": {0}, "finished": {1}}


@pytest.mark.parametrize(
    ("hosts", "left"),
    [
        pytest.param({"0.1": "now", "1.1": "now"}, [], id="what was made from the same is adopted"),
        pytest.param({"0.1": "before", "1.1": "now"}, ["0.1"], id="what was made from something else goes"),
        pytest.param({"2.1": "now", "10.1": "now"}, ["2.1", "10.1"], id="a rank that is not asked for goes"),
        pytest.param({"0.1": "now", "0.2": "now"}, ["0.1"], id="the newest of a rank is adopted"),
        pytest.param({"0.1": "now", "0.2": "before"}, ["0.1", "0.2"], id="none before the newest is adopted"),
    ],
)
def test_strays_that_no_mesh_adopts_are_unwanted(hosts: dict[str, str], left: list[str]) -> None:
    """The plan names them, and apply removes them and no others."""
    assert unwanted({"a": hosts}, {"a": {"hosts": 2, "made_from": "now"}}) == ({"a": left} if left else {})


def test_strays_of_a_mesh_that_nobody_names_are_unwanted() -> None:
    """It was taken out of the file before the apply that made them was finished."""
    assert unwanted({"b": {"0.1": "now"}}, {"a": {"hosts": 1, "made_from": "now"}}) == {"b": ["0.1"]}


def test_a_rank_that_is_not_wanted_any_more_is_not_made_again() -> None:
    """Of the hosts that a smaller mesh does without, only those that exist are removed."""
    group = HostGroup(
        hosts=listed([host(0), host(2)]),
        unfinished=(ended(1), UnfinishedHost(rank=3, generation=1, phase=Phase.QUEUED)),
    )

    assert decide(mesh(4), mesh(1), group, Diff()).touched == {"removed": {2, 3}}


def test_a_host_that_nobody_wants_is_removed() -> None:
    """A second host of a rank that serves is over, and so is one of a rank that is not asked for."""
    group = serving(2).model_copy(update={"surplus": ("1.2", "7.1")})

    assert decide(mesh(2), mesh(2), group, Diff()).touched == {"removed": {1, 7}}


def test_the_successor_of_a_host_that_is_remade_is_not_over() -> None:
    """A restart that was cut off left it; it is adopted."""
    group = serving(2).model_copy(update={"surplus": ("1.2",)})

    assert decide(mesh(2), mesh(2), group, RESTART).touched == {"restarted": {0, 1}}


@pytest.mark.parametrize(
    ("setting", "path"), [({"on_partial": "keep"}, "on_partial"), ({"labels": {"team": "red"}}, "labels.team")]
)
def test_a_policy_is_told_though_it_touches_no_host(setting: dict[str, object], path: str) -> None:
    """It stands in the state, so an apply has to write it there."""
    decision = decide(mesh(2), mesh(2, **setting), serving(2), Diff())

    assert decision.touched == {"changed": {0, 1}}
    assert [reason.path for reason in decision.reasons] == [path]


def test_a_label_is_told_by_its_key() -> None:
    """A reader sees which label changed, not two maps."""
    old, new = mesh(2, labels={"team": "blue"}), mesh(2, labels={"team": "red"})

    assert decide(old, new, serving(2), Diff()).reasons == (LABEL,)


def test_the_count_is_the_first_reason() -> None:
    """It says why hosts come and go; the settings say why others change."""
    assert decide(mesh(2), mesh(3), serving(2), RESTART).reasons == (Reason(path="hosts", old=2, new=3), ENV)


def test_a_decision_without_ranks_is_not_empty_if_it_has_a_reason() -> None:
    """A mesh of which nothing stands can still be asked for otherwise."""
    assert not Decision(reasons=(ENV,)).is_empty
    assert Decision().is_empty


# --- observe ----------------------------------------------------------------------------------------


def test_a_look_at_a_whole_group_changes_nothing() -> None:
    """Outputs hold nothing that moves by itself."""
    assert observe(serving(3), mesh(3), [host(2), host(0), host(1)]) == serving(3)


def test_a_host_that_vanished_is_remembered_as_gone() -> None:
    """The rank keeps that it served, look after look, so that its re-making reads as a replacement."""
    seen = observe(serving(2), mesh(2), [host(0)])

    assert seen.unfinished == (ended(1),)
    assert observe(seen, mesh(2), [host(0)]) == seen


def test_a_host_that_ended_says_how() -> None:
    """The provider's words reach the plan."""
    seen = observe(serving(2), mesh(2), [host(0), host(1, phase=Phase.ENDED, reason="out of memory")])

    assert seen.unfinished == (ended(1, "out of memory"),)


def test_how_another_host_of_the_rank_ended_is_not_how_this_one_did() -> None:
    """A successor that died at boot says nothing about the host that served."""
    seen = observe(serving(1), mesh(1), [host(0, 2, Phase.ENDED, "died at boot")])

    assert seen.unfinished == (ended(0),)


def test_a_host_that_became_ready_by_itself_is_not_listed() -> None:
    """Nobody has looked at it under the lock: it is still on its way."""
    group = HostGroup(unfinished=(UnfinishedHost(rank=0, generation=1, phase=Phase.BOOTING),), generations=(1,))

    seen = observe(group, mesh(1), [host(0)])

    assert seen.hosts == ()
    assert seen.unfinished == (UnfinishedHost(rank=0, generation=1, phase=Phase.BOOTING),)


def test_the_successor_of_a_host_that_serves_is_surplus() -> None:
    """Of two hosts of one rank the one that is listed serves until an apply says otherwise."""
    seen = observe(serving(1), mesh(1), [host(0), host(0, 2, Phase.BOOTING)])

    assert seen.hosts == serving(1).hosts
    assert seen.surplus == ("0.2",)
    assert seen.generations == (2,)


def test_a_host_that_was_left_without_a_record_is_seen() -> None:
    """A killed apply made it: at its rank it is on its way, beyond the mesh it is surplus."""
    seen = observe(HostGroup(), mesh(1), [host(0, phase=Phase.QUEUED, reason="nothing is free"), host(3)])

    assert seen.unfinished == (UnfinishedHost(rank=0, generation=1, phase=Phase.QUEUED, reason="nothing is free"),)
    assert seen.surplus == ("3.1",)


def test_a_generation_is_never_forgotten() -> None:
    """A rank that comes back gets a higher one, though its hosts are long gone."""
    group = HostGroup(generations=(4, 0, 2))

    assert generations(group, []) == (4, 0, 2)
    assert generations(group, [host(0, 3), host(1), host(4)]) == (4, 1, 2, 0, 1)


# --- for all worlds ---------------------------------------------------------------------------------

FUZZ = settings(max_examples=40, deadline=None)  # a deadline would fail on a busy machine

RANKS = st.integers(0, 5)
GENERATIONS = st.integers(1, 3)
HOSTS = st.builds(host, RANKS, GENERATIONS, st.sampled_from(Phase), st.sampled_from(["", "full"]))
WORLDS = st.lists(HOSTS, max_size=12, unique_by=lambda h: (h.rank, h.generation))
SIZES = st.integers(1, 6)
CHANGES = st.sampled_from([Diff(), RESTART, REPLACE])
GROUPS = st.lists(
    st.builds(ListedHost, rank=RANKS, generation=GENERATIONS, provider_id=st.just("x")), unique_by=lambda h: h.rank
).map(lambda hosts: HostGroup(hosts=tuple(sorted(hosts, key=lambda h: h.rank))))


@FUZZ
@given(GROUPS, SIZES, WORLDS)
def test_looking_twice_sees_the_same(group: HostGroup, size: int, world: list[Host]) -> None:
    """What is written after a look reads, after the next look at the same world, as it was written."""
    once = observe(group, mesh(size), world)

    assert observe(once, mesh(size), world) == once
    assert observe(once, mesh(size), reversed(world)) == once


@FUZZ
@given(GROUPS, SIZES, WORLDS)
def test_every_rank_and_every_living_host_has_its_place(group: HostGroup, size: int, world: list[Host]) -> None:
    """A wanted rank serves or is unfinished, never both; a living host is one of these or surplus."""
    seen = observe(group, mesh(size), world)
    unfinished = {entry.rank for entry in seen.unfinished}
    placed = {f"{h.rank}.{h.generation}" for h in (*seen.hosts, *seen.unfinished)} | set(seen.surplus)

    assert not seen.ranks & unfinished
    assert set(range(size)) <= seen.ranks | unfinished
    assert {f"{h.rank}.{h.generation}" for h in world if h.phase.is_alive} <= placed


@FUZZ
@given(SIZES, SIZES, WORLDS, GROUPS, CHANGES)
def test_a_decision_is_empty_exactly_when_nothing_differs(
    old: int, new: int, world: list[Host], group: HostGroup, change: Diff
) -> None:
    """No difference is passed over, and none is made up."""
    seen = observe(group, mesh(old), world)
    is_whole = seen.ranks == set(range(new)) and not seen.surplus and not _beyond(seen, new)

    assert decide(mesh(old), mesh(new), seen, change).is_empty is (is_whole and old == new and change == Diff())


@FUZZ
@given(SIZES, SIZES, WORLDS, GROUPS, CHANGES)
def test_no_rank_is_touched_by_two_contradicting_kinds(
    old: int, new: int, world: list[Host], group: HostGroup, change: Diff
) -> None:
    """What is made, awaited, remade or changed are different ranks, and all of them are wanted."""
    decision = decide(mesh(old), mesh(new), observe(group, mesh(old), world), change)
    kinds = [ranks for kind, ranks in decision.touched.items() if kind != "removed"]

    assert sum(map(len, kinds)) == len(frozenset().union(*kinds))
    assert frozenset().union(*kinds) <= set(range(new))


@FUZZ
@given(SIZES, st.randoms())
def test_after_a_look_at_a_whole_group_nothing_is_decided(size: int, chance: object) -> None:
    """Planning straight after an apply finds nothing to do."""
    world = [host(rank, rank % 3 + 1) for rank in range(size)]
    group = whole(world)
    chance.shuffle(world)  # type: ignore[attr-defined]

    assert decide(mesh(size), mesh(size), observe(group, mesh(size), world), Diff()).is_empty


@FUZZ
@given(GROUPS, SIZES, WORLDS)
def test_a_group_survives_the_state(group: HostGroup, size: int, world: list[Host]) -> None:
    """What the engine keeps is read as it was."""
    seen = observe(group, mesh(size), world)

    assert parse(encode(seen)) == seen


def test_what_else_a_resource_carries_is_no_part_of_its_group() -> None:
    """Inputs lie beside outputs in the engine's bag."""
    assert parse({**encode(serving(2)), "hosts": 2, "env": {}, "ground": {"prepared": True}}) == serving(2)
    assert parse({"hosts": 2}) == HostGroup()


def _beyond(group: HostGroup, size: int) -> bool:
    """Return whether a host beyond the mesh lives."""
    return any(rank >= size for rank in group.ranks) or any(
        entry.rank >= size and entry.phase is not None and entry.phase.is_alive for entry in group.unfinished
    )
