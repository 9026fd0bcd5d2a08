"""What fails is undone or kept as the job file says, what served goes on serving, and the message tells the way on.

On hosts that are files, through the real engine: which host fails, and when, is the test's to choose.
"""

from pathlib import Path

import pytest

from monarch_infra.model import Action
from monarch_infra.problem import (
    BugError,
    CapacityError,
    CredentialsError,
    InfraError,
    NotFoundError,
    NotReadyError,
    PartError,
    TimedOutError,
)
from real.files_lab import Lab

HOSTS = 3


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "job")


def whole(mesh: str, hosts: int, generation: int = 1) -> dict[str, int]:
    return {f"{mesh}[{rank}]": generation for rank in range(hosts)}


def failing(lab: Lab, kind: type[InfraError], **how: object) -> InfraError:
    """Apply and return the error, which must be of this kind exactly."""
    with pytest.raises(InfraError) as raised:
        lab.apply(**how)
    assert type(raised.value) is kind, f"{type(raised.value).__name__}: {raised.value}"
    return raised.value


# --- a mesh is a gang -------------------------------------------------------------------------------


def test_whichever_host_is_refused_nothing_is_left(lab: Lab) -> None:
    """X4: host k of N without capacity, for every k: no host stays, nothing is listed, exit 11."""
    lab.write(f"{{a: {HOSTS}}}")
    for rank in range(HOSTS):
        lab.rules(refuses=[f"a[{rank}]"])

        error = failing(lab, CapacityError)

        assert f"a[{rank}]" in str(error)
        assert lab.hosts() == lab.serving() == {}

    lab.rules()
    lab.apply()
    assert set(lab.hosts()) == set(lab.serving()) == set(whole("a", HOSTS))


def test_whichever_host_dies_at_its_boot_nothing_is_left(lab: Lab) -> None:
    """X4: host k of N ends while it starts, for every k: the others go too, exit 12 with the reason."""
    lab.write(f"{{a: {HOSTS}}}")
    for rank in range(HOSTS):
        lab.rules(dies=[f"a[{rank}]"])

        error = failing(lab, NotReadyError)

        assert "died at boot" in str(error)
        assert lab.hosts() == lab.serving() == {}


def test_the_part_that_was_got_is_kept_where_the_mesh_says_so(lab: Lab) -> None:
    """X4: with `on_partial: keep` the others serve, exit 4, and the next apply adds the one that was missing."""
    lab.write(f"{{a: {{hosts: {HOSTS}, on_partial: keep}}}}")
    lab.rules(refuses=["a[1]"])

    error = failing(lab, PartError)

    others = {name: 1 for name in whole("a", HOSTS) if name != "a[1]"}
    assert lab.hosts() == lab.serving() == others
    assert any(f"{HOSTS - 1} of {HOSTS}" in text for text in error.done)
    lab.rules()
    plan = lab.plan()
    assert [(change.action, change.ranks) for change in plan.changes] == [(Action.CREATE, (1,))]
    lab.apply()
    assert lab.hosts() == lab.serving() == whole("a", HOSTS)


def test_hosts_that_serve_are_no_part_of_what_is_undone(lab: Lab) -> None:
    """Growing from 2 to 4 is refused, and then dies: the 2 serve on, of the same generation."""
    lab.write("{a: 2}")
    lab.apply()
    lab.write("{a: 4}")
    for rules, kind in (({"capacity": 3}, CapacityError), ({"dies": ["a[3]"]}, NotReadyError)):
        lab.rules(**rules)

        failing(lab, kind)

        assert lab.hosts() == lab.serving() == whole("a", 2)


def test_the_old_hosts_serve_where_their_replacements_are_refused(lab: Lab) -> None:
    """A change that replaces hosts holds the new one first: without capacity the old ones are as they were."""
    lab.write("{a: 2}")
    lab.apply()
    lab.write("{a: {hosts: 2, files: {zone: b}}}")
    for rules, kind in (
        ({"capacity": 3}, CapacityError),
        ({"dies_young": ["a[1]"]}, NotReadyError),  # the old one of that rank lives
    ):
        lab.rules(**rules)

        failing(lab, kind)

        assert lab.hosts() == lab.serving() == whole("a", 2)
    lab.rules()
    lab.apply()
    assert lab.serving() == lab.hosts()
    assert set(lab.hosts()) == set(whole("a", 2))
    assert min(lab.hosts().values()) > 1


# --- time, queues -----------------------------------------------------------------------------------


def test_a_queue_without_end_is_left_when_the_time_is_over(lab: Lab) -> None:
    """After `timeouts.ready` nothing is queued or kept; the last reason was capacity, so the exit code is 11."""
    lab.write("{a: 3}", ready="2s")
    lab.rules(stays_queued=["a[2]"])

    error = failing(lab, CapacityError)

    assert "nothing is free" in str(error)
    assert lab.hosts() == lab.serving() == {}


def test_hosts_that_boot_too_long_are_removed(lab: Lab) -> None:
    """Our own limit passes while hosts are still coming: exit 9, and none of them costs anything from then on."""
    lab.write("{a: 2}", ready="2s")
    lab.rules(boot_s=1000)

    failing(lab, TimedOutError)

    assert lab.hosts() == lab.serving() == {}


def test_without_waiting_a_later_apply_finishes(lab: Lab) -> None:
    """`--no-wait` asks once and returns; the same hosts serve after the next apply, none was made twice."""
    lab.write("{a: 2}", ready="1s")
    lab.rules(boot_s=1000)

    asked = lab.apply(waits=False)

    assert asked.unfinished == {"a": 2}
    assert lab.serving() == {}
    assert lab.hosts() == whole("a", 2)
    lab.rules()
    lab.apply()
    assert lab.hosts() == lab.serving() == whole("a", 2)
    assert [call for call in lab.calls() if call.startswith("make")] == ["make a [(0, 1), (1, 1)]"]


def test_hosts_that_appear_after_their_apply_failed_are_finished(lab: Lab) -> None:
    """A provider may give hosts after it has said no: they are adopted, not doubled."""
    lab.write("{a: 2}")
    lab.rules(capacity=0)
    failing(lab, CapacityError)
    deployment = lab.load().state.deployment
    mesh = lab.load().spec.mesh("a")
    assert deployment is not None
    assert mesh is not None
    generation = lab.load().state.groups["a"].outputs.get("generations") or [0]
    late = lab.world / deployment.id / "a" / f"0.{int(max(generation)) + 1}"
    late.parent.mkdir(parents=True, exist_ok=True)
    late.write_text(f'{{"made_from": "{mesh.made_from}", "born": 0}}')
    lab.rules()

    assert not lab.plan().is_empty
    lab.apply()

    assert lab.serving() == lab.hosts()
    assert set(lab.hosts()) == set(whole("a", 2))
    assert late.exists()


# --- several meshes ---------------------------------------------------------------------------------


def test_one_mesh_fails_and_another_is_finished(lab: Lab) -> None:
    """The other mesh is waited for though it boots longer than one turn lasts; the failure is told at the end."""
    lab.write("{a: 2, b: 2}", ready="40s")
    lab.rules(refuses=["a[0]"], boot_s=6)

    error = failing(lab, CapacityError)

    assert lab.hosts() == lab.serving() == whole("b", 2)
    assert any("b: 2 of 2" in text for text in error.done)


def test_several_causes_are_a_part_that_failed(lab: Lab) -> None:
    """One mesh without capacity, one whose host dies: exit 4, both reasons told."""
    lab.write("{a: 1, b: 1, c: 1}")
    lab.rules(refuses=["a[0]"], dies=["b[0]"])

    error = failing(lab, PartError)

    assert "no capacity" in str(error)
    assert "died at boot" in str(error)
    assert lab.hosts() == lab.serving() == whole("c", 1)


def test_a_host_lost_elsewhere_while_we_wait_is_no_reason_to_stop(lab: Lab) -> None:
    """Another mesh's host vanishes between two turns: what was approved is finished, the loss is in the next plan."""
    lab.write("{a: 1, b: 1}")
    lab.apply()
    lab.write("{a: 2, b: 1}", ready="40s")
    lab.rules(boot_s=6, boots=["a[1]"])

    def lose(progress: object) -> None:
        for file in lab.world.glob("*/b/0.1"):
            file.unlink(missing_ok=True)

    lab.apply(on_progress=lose)

    assert set(lab.serving()) >= set(whole("a", 2))
    lost = lab.plan().changes
    assert [(change.mesh, change.action) for change in lost] == [("b", Action.REPLACE)]


# --- providers that fail ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "kind", "error"),
    [
        *((verb, "credentials", CredentialsError) for verb in ("find", "prepare", "make", "remove a")),
        *((verb, "bug", BugError) for verb in ("make", "remove a")),
    ],
)
def test_an_error_of_a_provider_keeps_its_cause_and_loses_no_host(
    lab: Lab, verb: str, kind: str, error: type[InfraError]
) -> None:
    """Refused credentials are exit 3 in whatever call they show, also in one the engine asked for, and an exception
    is a bug; hosts that were made before it are known, and the next apply is as ever."""
    lab.write("{a: 2}")
    if verb == "remove a":
        lab.apply()
        lab.write("{a: 1}")
    lab.rules(raises={verb: [kind, "as the rules say"]})

    assert "as the rules say" in str(failing(lab, error))

    lab.rules()
    lab.apply()
    assert lab.serving() == lab.hosts()
    assert lab.plan().is_empty


def test_credentials_refused_while_planning_are_told_as_such(lab: Lab) -> None:
    """The look that a plan makes fails: exit 3, not a failure of the engine."""
    lab.write("{a: 1}")
    lab.apply()
    lab.rules(raises={"find": ["credentials", "the token has expired"]})

    with pytest.raises(CredentialsError, match="the token has expired"):
        lab.plan()


def test_a_destroy_that_failed_half_way_can_be_finished_or_undone(lab: Lab) -> None:
    """What could not be removed stays in the state and in the message; destroy again, or apply, both work."""
    lab.write("{a: 2, b: 2}")
    for finish in ("destroy", "apply"):
        lab.rules()
        lab.apply()
        lab.rules(raises={"remove a": ["part", "in use"]})

        with pytest.raises(PartError) as raised:
            lab.destroy()

        assert any("a: 2 of 2" in text for text in raised.value.done)
        assert raised.value.next_command.startswith("monarch-infra destroy")
        assert set(lab.hosts()) == set(whole("a", 2))
        lab.rules()
        lab.destroy() if finish == "destroy" else lab.apply()
        assert set(lab.hosts()) == (set() if finish == "destroy" else {*whole("a", 2), *whole("b", 2)})


# --- refused before anything is touched -------------------------------------------------------------


def test_a_quota_refuses_before_anything_is_touched(lab: Lab) -> None:
    """A verdict that the plan cannot succeed is exit 11 with no call that changes something; shrinking is no such
    plan, and one of `--mesh` counts what it asks for and what stands."""
    lab.write("{a: 4}")
    lab.rules(quota=3)
    failing(lab, CapacityError)
    failing(lab, CapacityError, asks_first=True)
    assert lab.calls() == []
    assert lab.hosts() == {}

    lab.rules()
    lab.apply()
    lab.rules(quota=2)
    lab.write("{a: 3}")
    lab.apply()
    assert lab.hosts() == whole("a", 3)

    lab.write("{a: 3, b: 1, c: 100}")
    lab.rules(quota=4)
    lab.apply(meshes=["b"])
    assert lab.hosts() == whole("a", 3) | whole("b", 1)


# --- what the message says --------------------------------------------------------------------------


def test_the_message_says_what_runs_and_its_command_works(lab: Lab) -> None:
    """X33: after a failure: what runs now, how to remove it, and one command, which finishes once it can."""
    lab.write("{a: 1, b: 2}")
    lab.rules(refuses=["b[1]"])

    done = lab.command("apply", "--yes")

    assert done.returncode == 11
    assert "b[1]: no capacity" in done.stderr
    assert "a: 1 of 1 hosts serve" in done.stderr
    assert "To remove it: monarch-infra destroy --target lab" in done.stderr
    assert "Traceback" not in done.stderr
    lab.rules()
    assert lab.follow(done.stderr) == 0
    assert lab.hosts() == lab.serving()
    assert set(lab.hosts()) == {"a[0]", "b[0]", "b[1]"}


def test_exit_codes_follow_the_cause(lab: Lab) -> None:
    """Kept in part 4; our own limit passed 9, and the command that is printed finishes."""
    lab.write("{a: {hosts: 2, on_partial: keep}}")
    lab.rules(refuses=["a[1]"])
    assert lab.command("apply", "--yes").returncode == 4
    lab.write("{a: 2}", ready="1s")
    lab.rules(boot_s=1000)
    late = lab.command("apply", "--yes")
    assert late.returncode == 9
    lab.rules()
    assert lab.follow(late.stderr) == 0
    assert set(lab.serving()) == set(whole("a", 2))


# --- one mesh of several ----------------------------------------------------------------------------


def test_a_chosen_mesh_is_the_only_one_touched(lab: Lab) -> None:
    """`--mesh` keeps plan, apply and destroy to it: others are neither made, changed, looked after nor removed."""
    lab.write("{a: 1, b: 1}")
    assert [change.mesh for change in lab.plan(meshes=["a"]).changes] == ["a"]
    lab.apply(meshes=["a"])
    assert lab.hosts() == lab.serving() == whole("a", 1)

    lab.apply()
    lab.write("{a: 2, b: 2, c: 1}")
    lab.apply(meshes=["b"])
    assert lab.hosts() == lab.serving() == whole("a", 1) | whole("b", 2)

    lab.apply()
    lab.destroy(meshes=["b"])
    assert lab.hosts() == lab.serving() == whole("a", 2) | whole("c", 1)
    lab.rules(capacity=0)
    with pytest.raises(CapacityError) as raised:
        lab.apply(meshes=["b"])
    assert raised.value.next_command == f"monarch-infra apply --mesh b {lab.file} --target lab"
    lab.destroy()
    assert lab.hosts() == {}


def test_a_mesh_that_is_none_is_refused_with_what_was_meant(lab: Lab) -> None:
    """Exit 6, nothing touched, and the nearest name."""
    lab.write("{trainers: 1, loaders: 1}")
    for act in (lab.plan, lab.apply, lab.destroy):
        with pytest.raises(NotFoundError) as raised:
            act(meshes=["trainer"])
        assert "trainers" in raised.value.problems[0].hint
    assert lab.calls() == []


# --- whose is it ------------------------------------------------------------------------------------


def test_two_clones_of_one_job_do_not_touch_each_others_hosts(tmp_path: Path) -> None:
    """One job name, two directories, one world: each has a deployment of its own, and destroys only that."""
    one, other = Lab(tmp_path / "one"), Lab(tmp_path / "other")
    other.world.rmdir()
    other.world.symlink_to(one.world)
    for lab in (one, other):
        lab.write("{a: 2}")
        lab.apply()
    assert one.plan().is_empty
    assert other.plan().is_empty
    assert len(list(one.world.glob("*/a/[0-9]*"))) == 4

    one.destroy()

    assert other.plan().is_empty
    assert other.hosts() == other.serving() == whole("a", 2)


def test_a_target_that_changes_its_provider_takes_its_hosts_along(lab: Lab) -> None:
    """The target keeps its name and gets another provider: the plan says that old hosts go and new ones come, and
    none of the old ones is adopted, kept or forgotten."""
    lab.write("{a: 2}")
    lab.apply()
    text = lab.file.read_text()
    lab.file.write_text(text.replace("provider: files", "provider: local"))
    try:
        planned = {change.action for change in lab.plan().changes}
        assert planned == {Action.CREATE, Action.DELETE}
        lab.apply()
        assert lab.hosts() == {}
        assert set(lab.serving()) == set(whole("a", 2))
        assert lab.plan().is_empty
        lab.file.write_text(text)
        lab.apply()
        assert lab.hosts() == lab.serving() == whole("a", 2)
        lab.file.write_text(text.replace("provider: files", "provider: local"))
    finally:
        lab.destroy()
    assert lab.hosts() == {}


def test_meshes_may_be_called_as_we_call_something_else(lab: Lab) -> None:
    """Names of ours are none of the user's concern."""
    names = ["site", "deployment", "outputs", "hosts", "index", "meshes", "default"]
    lab.write("{" + ", ".join(f"{name}: 1" for name in names) + "}")
    lab.apply()
    assert lab.hosts() == lab.serving() == {f"{name}[0]": 1 for name in names}
    assert lab.plan().is_empty
    lab.destroy(meshes=["site", "deployment"])
    assert set(lab.hosts()) == {f"{name}[0]" for name in names[2:]}


def test_values_of_any_shape_survive(lab: Lab) -> None:
    """Odd characters in settings come back from the state as they went in: the plan is empty, a change is seen."""
    odd = '{X: "ü 火 \\" \\\\ $HOME ${HOME} {{x}} %s", Y: "", Z: "1e3"}'
    lab.write(f"{{a: {{hosts: 1, env: {odd}, labels: {{team.x/y: 'a=b, [c]'}}}}}}")
    lab.apply()
    assert lab.plan().is_empty
    lab.write("{a: {hosts: 1, labels: {team.x/y: other}}}")
    lab.apply()
    assert lab.plan().is_empty
    lab.destroy()
