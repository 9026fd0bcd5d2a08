"""Steps of the engine read as lines of a plan; the recorded ones lie in `tests/golden`."""

import json
from typing import Any

import pytest

from monarch_infra import plan, render
from monarch_infra.model import Action, Change, JobSpec, MeshSpec, Plan, Reason, Step, Verdict, ranges

JOB = JobSpec(name="llama", target="test", provider="memory", meshes=(MeshSpec(name="trainers", hosts=2),))


def members(*ranks: int) -> str:
    return json.dumps([{"rank": rank, "generation": 1, "provider_id": "x"} for rank in ranks])


def unfinished(rank: int, phase: str | None = None, reason: str = "") -> dict[str, Any]:
    return {"rank": rank, "generation": 1, "phase": phase, "reason": reason}


def update(paths: list[str], *, old: Any = None, new: Any = None, **made: Any) -> Step:
    return Step(
        kind="HostGroup",
        name="trainers",
        op="update",
        paths=dict.fromkeys(paths, "update"),
        old={"hosts": 2, **(old or {})},
        new={"hosts": 2, **(new or {})},
        made=made,
    )


def read(*steps: Step, **facts: Any) -> Plan:
    return plan.read(JOB, steps, **facts)


def only(step: Step) -> Change:
    (change,) = read(step).changes
    return change


# --- what a step says -------------------------------------------------------------------------------


def test_no_step_is_nothing_to_do() -> None:
    """Everything that stands is told to be as it should."""
    made = read(standing={"b": 2, "a": 1})

    assert made.is_empty
    assert made.unchanged == {"a": 1, "b": 2}


def test_a_group_that_is_created_is_all_its_ranks() -> None:
    """The reason is the job file itself."""
    step = Step(kind="HostGroup", name="trainers", op="create", new={"hosts": 3})

    assert only(step) == Change(mesh="trainers", action=Action.CREATE, ranks=(0, 1, 2))


@pytest.mark.parametrize(("destroys", "why"), [(True, "destroyed"), (False, "not in the job file any more")])
def test_a_group_that_is_deleted_is_the_hosts_that_exist(destroys: bool, why: str) -> None:
    """Those that serve, those on their way and those too many; not those that are gone."""
    step = Step(
        kind="HostGroup",
        name="trainers",
        op="delete",
        made={
            "members": members(0, 3),
            "unfinished": [unfinished(1, "booting"), unfinished(2, "ended", "gone"), unfinished(4)],
            "surplus": ["0.2", "7.1"],
        },
    )

    (change,) = read(step, destroys=destroys).changes

    assert (change.action, change.ranks, change.reasons) == (Action.DELETE, (0, 1, 3, 7), (Reason(text=why),))


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        ("made", Action.CREATE),
        ("finished", Action.CREATE),
        ("lost", Action.REPLACE),
        ("replaced", Action.REPLACE),
        ("restarted", Action.UPDATE),
        ("changed", Action.UPDATE),
        ("removed", Action.DELETE),
    ],
)
def test_each_kind_of_work_is_an_action_on_its_ranks(kind: str, action: Action) -> None:
    """Nothing that `decide` can say is passed over."""
    change = only(update([f'{kind}["0,2-3"]']))

    assert (change.mesh, change.action, change.ranks) == ("trainers", action, (0, 2, 3))


def test_other_resources_are_no_lines() -> None:
    """Deployment, site and what is not ours are the engine's business, except that the deployment may end."""
    made = read(
        Step(kind="Deployment", name="deployment", op="delete"), Step(kind="MeshAgent", name="agent", op="update")
    )

    assert made.changes == ()
    assert made.ends_deployment
    assert not made.is_empty


# --- why --------------------------------------------------------------------------------------------

GROWS = Reason(path="hosts", old=2, new=4)
SHRINKS = Reason(path="hosts", old=4, new=2)


def test_growing_is_the_reason_of_the_ranks_it_adds() -> None:
    """A rank that should have stood before is told apart."""
    grown = only(update(["hosts", 'made["2-3"]'], new={"hosts": 4}))
    both = only(update(["hosts", 'made["1-3"]'], new={"hosts": 4}))

    assert grown.reasons == (GROWS,)
    assert both.reasons == (GROWS, Reason(text="not made yet"))


def test_shrinking_is_the_reason_of_the_ranks_it_takes() -> None:
    """A host too many of a rank that stays was left by somebody."""
    shrunk = only(update(["hosts", 'removed["2-3"]'], old={"hosts": 4}))
    both = only(update(["hosts", 'removed["0,2-3"]'], old={"hosts": 4}))

    assert shrunk.reasons == (SHRINKS,)
    assert both.reasons == (SHRINKS, Reason(text="left by an apply that was cut off"))


def test_growing_is_no_reason_to_remove_and_shrinking_none_to_make() -> None:
    """What goes while a mesh grows was left, and what comes while it shrinks had never been made."""
    removed, made = read(update(["hosts", 'removed["0"]', 'made["2-3"]'], new={"hosts": 4})).changes
    gone, come = read(update(["hosts", 'removed["2-3"]', 'made["0"]'], old={"hosts": 4})).changes

    assert removed.reasons == (Reason(text="left by an apply that was cut off"),)
    assert made.reasons == (GROWS,)
    assert gone.reasons == (SHRINKS,)
    assert come.reasons == (Reason(text="not made yet"),)


def test_a_setting_is_told_with_its_values_before_and_after() -> None:
    """A key that is new or gone has none on one side."""
    change = only(
        update(
            ["env.A", "env.B", "env.C", 'restarted["0-1"]'],
            old={"env": {"A": "1", "B": "1"}},
            new={"env": {"A": "2", "C": "1"}},
        )
    )

    assert change.reasons == (
        Reason(path="env.A", old="1", new="2"),
        Reason(path="env.B", old="1", new=None),
        Reason(path="env.C", old=None, new="1"),
    )
    assert change.effect == "2 workers restart"


def test_a_key_may_hold_dots_itself() -> None:
    """Labels of Kubernetes do."""
    change = only(
        update(
            ["labels.example.org/team", 'changed["0"]'],
            old={"labels": {"example.org/team": "blue"}},
            new={"labels": {"example.org/team": "red"}},
        )
    )

    assert change.reasons == (Reason(path="labels.example.org/team", old="blue", new="red"),)


def test_a_default_is_told_though_no_input_holds_it() -> None:
    """What holds its default is left out of the state; the reader still sees from what to what."""
    change = only(update(["on_partial", 'changed["0-1"]'], new={"on_partial": "keep"}))

    assert change.reasons == (Reason(path="on_partial", old="remove", new="keep"),)


def test_lost_hosts_say_how_they_ended_each_way_once() -> None:
    """A thousand ends of one kind are one reason; of many kinds the rest is counted."""
    ends = ["killed", "killed", "no power", "on fire", ""]
    step = update(['lost["0-4"]'], unfinished=[unfinished(rank, "ended", end) for rank, end in enumerate(ends)])

    assert only(step).reasons == (
        Reason(text="lost: gone"),
        Reason(text="lost: killed"),
        Reason(text="and 2 other reasons"),
    )


def test_only_the_lost_ranks_say_how_they_ended() -> None:
    """What else is unfinished has its own line."""
    step = update(['lost["0"]'], unfinished=[unfinished(0, "ended", "killed"), unfinished(1, "booting", "slow")])

    assert only(step).reasons == (Reason(text="lost: killed"),)


@pytest.mark.parametrize("kind", ["made", "lost", "finished"])
def test_a_setting_that_touches_nobody_who_serves_is_told_with_who_is_made_by_it(kind: str) -> None:
    """Else a change that apply carries out would stand in no plan."""
    change = only(update(["env.A", f'{kind}["0-1"]'], new={"env": {"A": "2"}}))

    assert change.reasons[-1] == Reason(path="env.A", old=None, new="2")


def test_a_setting_is_told_once() -> None:
    """Where a line of a serving host tells it, the others do not repeat it."""
    made = read(update(["env.A", 'lost["0"]', 'restarted["1"]'], new={"env": {"A": "2"}}))

    assert [reason.path for change in made.changes for reason in change.reasons] == ["", "env.A"]


@pytest.mark.parametrize(("ranks", "effect"), [("0", "1 worker restarts"), ("0-1", "2 workers restart")])
def test_a_restart_is_counted_in_words(ranks: str, effect: str) -> None:
    """One worker restarts, two restart."""
    assert only(update([f'restarted["{ranks}"]'])).effect == effect


# --- strays -----------------------------------------------------------------------------------------


def site(op: str, *paths: str, **strays: list[str]) -> Step:
    made = {"strays": {mesh: dict.fromkeys(hosts, "") for mesh, hosts in strays.items()}}
    return Step(kind="Site", name="site", op=op, paths=dict.fromkeys(paths, "delete"), made=made)


def test_hosts_that_nobody_names_are_deleted() -> None:
    """Those that a mesh will adopt stand in no path, and in no line."""
    assert only(site("update", 'strays["stray[0,2]"]', asked=["0.1"], stray=["0.1", "2.1"])) == Change(
        mesh="stray",
        action=Action.DELETE,
        ranks=(0, 2),
        reasons=(Reason(text="left by an apply that was cut off"),),
    )


def test_all_strays_go_with_their_site() -> None:
    """A destroy asks for none."""
    assert [change.mesh for change in read(site("delete", b=["0.1"], a=["1.1"])).changes] == ["a", "b"]


# --- the whole --------------------------------------------------------------------------------------


def test_what_takes_away_comes_first_then_by_mesh() -> None:
    """Deletes, replaces, updates, creates."""
    steps = [
        Step(kind="HostGroup", name="a", op="create", new={"hosts": 1}),
        update(['restarted["0"]', 'lost["1"]', 'made["3"]', 'removed["2"]']),
        Step(kind="HostGroup", name="b", op="create", new={"hosts": 1}),
    ]

    made = read(*steps)

    assert [f"{c.action.value}{c.mesh}[{ranges(c.ranks)}]" for c in made.changes] == [
        "-trainers[2]",
        "±trainers[1]",
        "~trainers[0]",
        "+a[0]",
        "+b[0]",
        "+trainers[3]",
    ]
    assert read(*reversed(steps)) == made


def test_a_mesh_that_a_change_touches_is_not_told_as_unchanged() -> None:
    """Of the others the hosts are counted."""
    assert read(update(['made["1"]']), standing={"trainers": 2, "loaders": 1}).unchanged == {"loaders": 1}


def test_an_approval_binds_to_the_work_and_to_nothing_that_only_informs() -> None:
    """Prices and digests may move between plan and apply; ranks, reasons and the deployment may not."""
    step = update(['made["1"]'])
    made = read(step, deployment="d1")

    assert read(step, deployment="d1", state_digest="5", verdicts=[Verdict(text="cheap")]).digest == made.digest
    assert read(step, deployment="d2").digest != made.digest
    assert read(update(['made["0-1"]']), deployment="d1").digest != made.digest
    assert read(step, Step(kind="Deployment", name="d", op="delete"), deployment="d1").digest != made.digest


# --- compare ----------------------------------------------------------------------------------------


def test_equal_work_has_not_moved() -> None:
    """What only informs may differ."""
    first, second = read(update(['made["1"]'])), read(update(['made["1"]']), verdicts=[Verdict(text="dearer")])

    assert plan.moved(first, second, render.change_line) == []


def test_what_moved_is_named_from_both_sides() -> None:
    """What was approved and is not needed, and what is needed and was not approved."""
    first, second = read(update(['made["1"]'])), read(update(['lost["0"]'], unfinished=[unfinished(0, "ended")]))

    assert plan.moved(first, second, render.change_line) == [
        "approved, not needed now: + trainers[1] not made yet",
        "needed now, not approved: ± trainers[0] lost: gone",
    ]


def test_another_deployment_is_another_plan() -> None:
    """The same work on other hosts was not approved."""
    step = update(['made["1"]'])

    assert plan.moved(read(step, deployment="d1"), read(step, deployment="d2"), render.change_line) == [
        "the deployment was d1 and is d2"
    ]
    assert plan.moved(read(step), read(step, deployment="d2"), render.change_line) == [
        "the deployment was none and is d2"
    ]


def test_the_end_of_the_deployment_has_to_be_approved() -> None:
    """It removes what the meshes share, though no line names a host."""
    ends = Step(kind="Deployment", name="deployment", op="delete")

    assert plan.moved(read(), read(ends), render.change_line) == ["the deployment ends"]


def test_many_differences_are_counted() -> None:
    """A refusal is read under pressure."""
    steps = [Step(kind="HostGroup", name=f"m{n}", op="create", new={"hosts": 1}) for n in range(1000)]

    lines = plan.moved(read(), read(*steps), render.change_line)

    assert len(lines) == 4
    assert lines[-1] == "and 997 more differences"


def test_what_remains_of_a_begun_plan_is_covered() -> None:
    """Fewer ranks, and another kind of work on them, are part of what was approved."""
    approved = read(update(['made["0-3"]']))

    assert plan.uncovered(approved, read(update(['finished["1-2"]'])), render.change_line) == []
    assert plan.uncovered(approved, read(), render.change_line) == []


def test_ranks_and_meshes_that_nobody_approved_are_not_covered() -> None:
    """A host that was lost meanwhile is a new plan's business."""
    approved = read(update(['made["2-3"]']))
    lost = update(['lost["1"]'], unfinished=[unfinished(1, "ended", "killed")])
    other = Step(kind="HostGroup", name="other", op="create", new={"hosts": 1})

    assert plan.uncovered(approved, read(lost, other), render.change_line) == [
        "needed now, not approved: ± trainers[1] lost: killed",
        "needed now, not approved: + other[0] 1 host",
    ]


def test_what_all_meshes_share_is_a_line_of_its_own() -> None:
    """An option of the site belongs to no mesh; an update that the plan does not show would be done unseen."""
    step = Step(
        kind="Site",
        name="site",
        op="update",
        paths={"options": "update"},
        old={"options": {"region": "a"}},
        new={"options": {"region": "b"}},
    )

    (change,) = read(step).changes

    assert (change.mesh, change.action, change.ranks) == ("", Action.UPDATE, ())
    assert change.reasons == (Reason(path="options", old={"region": "a"}, new={"region": "b"}),)
