"""Promises of the catalogue that only the whole product can keep: several commands, several processes, one job."""

import json
import os
import re
from pathlib import Path

import pytest

from e2e.shell import FILES_LAB, Shell, listening, until

ANY_LOOPBACK = "0100007F:"
"""127.0.0.1 as the kernel writes it."""


# --- plan shows what changes, and why ----------------------------------------------------------------

BEFORE = """\
version: 1
meshes:
  trainers: {hosts: 2, env: {MODE: "slow"}}
  loaders: 1
  writers: 1
"""
AFTER = """\
version: 1
meshes:
  trainers: {hosts: 2, env: {MODE: "fast"}}
  loaders: {hosts: 1, resources: {cpus: 4}}
  writers: 2
"""
PLANNED = """\
  + 1   ~ 2   ± 0   - 0 hosts
  ~  trainers[0-1]  env.MODE "slow" -> "fast"   2 workers restart
  +  writers[1]     hosts 1 -> 2
  local ignores: cpus
"""


def test_a_plan_shows_each_change_with_why_and_what_restarts(shell: Shell) -> None:
    """C8, C12, C13, J4: a line per mesh with old and new; the same bytes twice; apply does that, and only that."""
    shell.write(BEFORE)
    shell("apply", "--yes")
    before = shell.hosts()
    shell.write(AFTER)

    once, twice = shell("plan", "--detailed-exitcode", code=2), shell("plan")
    applied = shell("apply", "--yes")
    after = shell.hosts()
    again = [shell("plan", "--detailed-exitcode"), shell("apply")]

    assert once.out == twice.out
    assert once.out.partition("\n\n")[2] == PLANNED
    assert once.out in applied.out
    assert "Done: 1 created, 2 changed · 5 hosts serve\n" in applied.out
    assert {name for name in after if after[name] == before.get(name)} == {"loaders/0.1", "writers/0.1"}
    assert {name for name in after if name not in before} == {"trainers/0.2", "trainers/1.2", "writers/1.1"}
    for done in again:
        assert "\nnothing to do: 3 meshes match, 5 hosts\n" in done.out
    assert shell.hosts() == after


# --- create or update, and nothing else --------------------------------------------------------------

THROUGH = """
job = InfraJob("job.yaml")
first = job.state().workers.slice(hosts=0)
actors = first.spawn_procs().spawn("counter", Counter)
for _ in range(3):
    tell([count(actors), len(count(job.state().workers.spawn_procs().spawn("counter", Counter)))])
    wait()
"""


def test_hosts_that_stay_are_not_touched_by_a_change_of_count(shell: Shell) -> None:
    """J1, J3: over 2, 4 and 2 hosts again, an actor on rank 0 keeps its value in a client that runs through."""
    shell.write("version: 1\nmeshes: {workers: 2}\n")
    shell("apply", "--yes")
    pid = shell.hosts()["workers/0.1"]
    client = shell.client(THROUGH)
    said = [client.says()]

    for hosts in (4, 2):
        shell.write(f"version: 1\nmeshes: {{workers: {hosts}}}\n")
        shell("apply", "--yes")
        client.go_on()
        said.append(client.says())
    client.go_on()
    client.end()

    assert said == [[[[1, pid]], 2], [[[2, pid]], 4], [[[3, pid]], 2]]
    assert shell("status", "--json").json["meshes"] == {"workers": {"wanted": 2, "serving": 2, "notes": []}}


def calls(shell: Shell) -> list[str]:
    """Return the calls that reached the provider; a plan of a job without a state makes none."""
    log = shell.path / "world" / "calls.log"
    return log.read_text().splitlines() if log.exists() else []


def mutating(lines: list[str]) -> list[str]:
    return [line for line in lines if line.split()[0] in ("prepare", "make", "remove", "clear")]


def test_a_second_apply_changes_nothing_anywhere(paid: Shell) -> None:
    """J4: exit 0, the reason, and not one mutating call in the provider's own log."""
    paid("apply", "--yes", "--target", "prod")
    first = calls(paid)

    again = paid("apply", "--yes", "--target", "prod")

    assert mutating(first) == ["prepare", "make workers [(0, 1), (1, 1)]"]
    assert mutating(calls(paid)[len(first) :]) == []
    assert again.out.endswith("\nnothing to do: 1 mesh matches, 2 hosts\n")


def test_a_plan_changes_nothing(paid: Shell) -> None:
    """A plan of a job that was never applied makes no call that changes something, and writes no state."""
    paid("plan", "--target", "prod")

    assert mutating(calls(paid)) == []
    assert paid("status", "--target", "prod").out == "stored on prod    nothing was applied\n"


@pytest.mark.parametrize(("refused", "policy"), [(0, "remove"), (1, "remove"), (2, "remove"), (1, "keep")])
def test_a_mesh_is_a_gang(paid: Shell, refused: int, policy: str) -> None:
    """X4: whichever host of three is refused, nothing of the mesh is left; `on_partial: keep` keeps what came."""
    paid.write(
        f"version: 1\nname: gang\nmeshes: {{workers: {{hosts: 3, on_partial: {policy}}}}}\n"
        "targets: {prod: {provider: files}}\n"
    )
    (paid.path / "world").mkdir()
    (paid.path / "world" / "rules.json").write_text(json.dumps({"capacity": refused}))

    failed = paid("apply", "--yes", "--target", "prod", code=4 if policy == "keep" else 11)

    standing = sorted(path.name for path in paid.path.glob("world/*/workers/*.*"))
    assert standing == ([f"{rank}.1" for rank in range(refused)] if policy == "keep" else [])
    assert "no capacity for another file" in failed.err
    assert failed.err.endswith("next: monarch-infra apply --target prod\n")


def test_work_follows_the_change_and_not_the_fleet(paid: Shell) -> None:
    """X37: a plan and an apply of 512 hosts make as many calls to the provider as of 16, and as many lines."""
    counts, plans = [], []
    for hosts in (16, 512):
        paid.write(f"version: 1\nname: wide{hosts}\nmeshes: {{a: {hosts}}}\ntargets: {{prod: {{provider: files}}}}\n")
        seen = len(calls(paid))
        plans.append(paid("plan", "--target", "prod").out)
        paid("apply", "--yes", "--target", "prod")
        paid("plan", "--target", "prod")
        counts.append([line.split()[0] for line in calls(paid)[seen:]])

    assert counts[0] == counts[1]
    assert len(plans[0].splitlines()) == len(plans[1].splitlines()) < 10


# --- state() -----------------------------------------------------------------------------------------


def test_five_lines_of_python_make_free_hosts(shell: Shell) -> None:
    """J5, J1: in a directory with only a job file, `state()` applies by itself, and the meshes answer by name."""
    shell.write("version: 1\nmeshes: {trainers: 2, loaders: 1}\n")

    said = shell.python(
        "state = InfraJob('job.yaml').state()\n"
        "tell({name: count(mesh.spawn_procs().spawn('c', Counter)) for name, mesh in state._hosts.items()})"
    )

    pids = shell.hosts()
    assert said == {
        "loaders": [[1, pids["loaders/0.1"]]],
        "trainers": [[1, pids["trainers/0.1"]], [1, pids["trainers/1.1"]]],
    }


ATTEMPT = """
from monarch_infra.problem import InfraError
options = json.loads(sys.argv[1])
try:
    InfraJob("job.yaml", "prod", **options)._whole()
    tell("applied")
except InfraError as error:
    tell([type(error).__name__, str(error), error.next_command])
"""
"""`_whole` is what `state()` does before it connects; hosts that are files answer no connection."""


def test_hosts_that_cost_something_are_made_only_when_asked(paid: Shell) -> None:
    """J5, F19: on a target that costs, `state()` names the command; `auto_apply=True` makes and adds hosts, and
    refuses a plan that does more than add."""
    refused = paid.python(ATTEMPT, "{}")
    untouched = (paid.path / "world").exists()
    made = paid.python(ATTEMPT, '{"auto_apply": true}')
    paid.write((paid.path / "job.yaml").read_text().replace("workers: 2", "workers: 3"))
    added = paid.python(ATTEMPT, '{"auto_apply": true}')
    paid.write((paid.path / "job.yaml").read_text().replace("workers: 3", "workers: 1"))
    more = paid.python(ATTEMPT, '{"auto_apply": true}')

    assert (refused[0], refused[2]) == ("NotFoundError", "monarch-infra apply --target prod")
    assert untouched is False
    assert (made, added) == ("applied", "applied")
    assert (more[0], "more than adding hosts" in more[1]) == ("RefusedError", True)
    assert sorted(path.name for path in paid.path.glob("world/*/workers/*.*")) == ["0.1", "1.1", "2.1"]


def test_an_edited_file_never_kills(shell: Shell) -> None:
    """X7, T13: a client of an edited file is told the difference and the command; hosts and their pids stay."""
    shell.write("version: 1\nmeshes: {workers: 2}\n")
    shell("apply", "--yes")
    pids = shell.hosts()
    shell.write("version: 1\nmeshes: {workers: {hosts: 1, env: {A: b}}, more: 1}\n")

    failed = shell.run(
        "python",
        "-c",
        "from monarch_infra import InfraJob\nfrom monarch_infra.problem import InfraError\n"
        "try:\n    InfraJob('job.yaml').state()\nexcept InfraError as error:\n    raise SystemExit(str(error))",
        code=1,
    )

    told = 'changed: more is new, workers.hosts 2 -> 1, workers.env.A (none) -> "b".'
    assert failed.err.strip() == f"the job file asks for something else than what runs: {told}"
    assert shell.hosts() == pids
    assert shell("status").out.splitlines()[-1].startswith("The job file asks for something else: ")


# --- one life, many processes ------------------------------------------------------------------------

TELL_JOB = "job = InfraJob(sys.argv[1]); tell([job.active, job.apply_id])"
ATTACHED = """
job = InfraJob(sys.argv[1])
state = job.state()
procs = state.workers.spawn_procs()
tell([job.apply_id, count(procs.spawn("counter", Counter))])
if sys.argv[2:]:
    wait()
procs.stop().get(timeout=60)
"""


def test_a_job_is_the_same_in_every_process(shell: Shell, tmp_path: Path) -> None:
    """T5, T6, T7, Z2: a client killed with -9 starts again elsewhere and finds the same deployment and hosts, with
    every file of Monarch's gone; another life has another id."""
    file = str(shell.write("version: 1\nhosts: 2\n"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    never = shell.python(TELL_JOB, file)
    shell("apply", "--yes")
    pids = list(shell.hosts().values())

    killed = shell.client(ATTACHED, file, "stay")
    first = killed.says()
    killed.kill()
    for pickle in shell.path.rglob("*.pkl"):
        pickle.unlink()
    again = shell.python(ATTACHED, file, cwd=elsewhere)
    seen = [shell.python(TELL_JOB, file), shell("status", "--json").json["deployment"]]
    shell("destroy", "--yes")
    gone = shell.python(TELL_JOB, file)
    shell("apply", "--yes")
    reborn = shell("status", "--json").json["deployment"]

    assert first[0] is not None
    assert first == again == [first[0], [[1, pid] for pid in pids]]
    assert seen == [[True, first[0]], first[0]]
    assert never == gone == [False, None]
    assert reborn not in (None, first[0])
    assert os.listdir(elsewhere) == []


LOADED = """
from monarch.job import job_load
job = job_load(sys.argv[1])
tell([type(job).__name__, job.apply_id, len(count(job.state().workers.spawn_procs().spawn("c", Counter)))])
"""


def test_the_pickle_of_a_job_file_leads_to_its_hosts(standing: Shell, tmp_path: Path) -> None:
    """Z1, T8: a job of a job file, dumped through a link into a missing directory, is loaded by another process."""
    link = tmp_path / "link.pkl"
    link.symlink_to(tmp_path / "missing" / "job.pkl")

    dumped = standing.python(
        ("job = InfraJob('job.yaml'); job.state(); job.dump(sys.argv[1]); tell(job.apply_id)"), str(link)
    )
    loaded = standing.python(LOADED, str(link), cwd=tmp_path)

    assert loaded == ["InfraJob", dumped, 2]
    assert link.is_symlink()
    assert (tmp_path / "missing" / "job.pkl").stat().st_size < 2000


def test_environment_reaches_the_actors(shell: Shell) -> None:
    """L2: `runtime.env` is everywhere, a mesh's own wins over it, and the operator's own environment is not there."""
    shell.write(
        "version: 1\nruntime: {env: {WHO: job, KEPT: job}}\n"
        "meshes: {trainers: {hosts: 1, env: {WHO: mesh}}, loaders: 1}\n"
    )
    shell("apply", "--yes", env={"AWS_SECRET_ACCESS_KEY": "planted-by-the-test"})

    said = shell.python(
        """
state = InfraJob("job.yaml").state()
asked = {mesh: state[mesh].spawn_procs().spawn("counter", Counter) for mesh in state}
names = ["WHO", "KEPT", "AWS_SECRET_ACCESS_KEY"]
tell({mesh: [actors.env.call_one(name).get(timeout=60) for name in names] for mesh, actors in asked.items()})
"""
    )

    assert said == {"loaders": ["job", "job", None], "trainers": ["mesh", "job", None]}


# --- what a command leaves behind --------------------------------------------------------------------


def test_after_a_command_only_hosts_run(shell: Shell) -> None:
    """X38, L1: no process of ours but the hosts outlives any command, and hosts listen on loopback only."""
    shell("init")
    for words in (
        ["plan"],
        ["apply", "--yes"],
        ["status"],
        ["ping"],
        ["output"],
        ["apply", "--yes"],
        ["plan", "--destroy"],
    ):
        shell(*words)
        assert shell.clients() == [], words
    shell.run("python", "hello.py")
    until(lambda: not shell.clients(), limit_s=2)
    hosts = set(shell.hosts().values())

    assert len(hosts) == 2
    heard = listening(hosts)
    assert set(heard) == hosts
    assert all(address.startswith(ANY_LOOPBACK) for addresses in heard.values() for address in addresses)
    shell("destroy", "--yes")
    assert (shell.hosts(), shell.clients()) == ({}, [])


# --- names -------------------------------------------------------------------------------------------

NAMES = [("Trainers", "trainers"), ("my-mesh", "mymesh"), ("a" * 64, ""), ("2fast", "")]


@pytest.mark.parametrize("target", ["local", "prod"])
def test_mesh_names_have_one_rule_on_every_provider(paid: Shell, target: str) -> None:
    """K6: a name that Monarch or a DNS label cannot carry is refused at its place, with a name that would do."""
    rows = "".join(f"  {name}: 1\n" for name, _ in NAMES)
    paid.write(f"version: 1\nmeshes:\n{rows}targets:\n  prod: {{provider: files}}\n")

    told = paid("plan", "--target", target, code=65).err

    blocks = told.removesuffix("\n").split("\n\n")
    assert [block.splitlines()[:2] for block in blocks] == [
        ["error: mesh name not allowed", f"  job.yaml:{number}:3"] for number in range(3, 3 + len(NAMES))
    ]
    for block, (_, better) in zip(blocks, NAMES, strict=True):
        assert re.search(f"^hint: rename it to `{better}", block, flags=re.MULTILINE) or not better, block


def test_two_lines_are_a_job(tmp_path: Path) -> None:
    """KT11: `version` and `hosts` give the mesh `workers` in a job called after its directory and its file."""
    folder = tmp_path / "My Project"
    folder.mkdir()
    shell = Shell(folder, PYTHONPATH=str(FILES_LAB))
    for name in ("job.yaml", "eval.yaml"):
        shell.write("version: 1\nhosts: 2\n", name)

    planned = [shell("plan", name, "--json").json for name in ("job.yaml", "eval.yaml")]

    assert [plan["job"] for plan in planned] == ["my-project", "my-project-eval"]
    assert [[change["mesh"] for change in plan["changes"]] for plan in planned] == [["workers"], ["workers"]]
