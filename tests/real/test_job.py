"""InfraJob and ping over real workers; every client is a process of its own, as it is for a user."""

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monarch_infra import InfraJob, connect
from monarch_infra.engine import install
from monarch_infra.model import MeshSpec, Outputs, Phase
from monarch_infra.problem import EngineError, NotFoundError, NotReadyError, PlanStaleError, RefusedError, UsageError
from monarch_infra.providers.local import Local
from real.on_this_machine import LocalHosts, answer, is_alive, pid, processes, python, until, versions

MESHES = {"trainers": 2, "loaders": 1}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHosts]:
    """Two trainers and one loader, for all tests that leave them as they are."""
    hosts = LocalHosts(tmp_path_factory.mktemp("job"))
    for name, count in MESHES.items():
        hosts.make(MeshSpec(name=name, hosts=count))
    hosts.ready(3)
    yield hosts
    hosts.end()


@pytest.fixture
def few(tmp_path: Path) -> Iterator[LocalHosts]:
    """Two hosts of a test's own, to do something to."""
    hosts = LocalHosts(tmp_path)
    hosts.make(MeshSpec(name="trainers", hosts=2))
    hosts.ready(2)
    yield hosts
    hosts.end()


def file_of(outputs: Outputs, path: Path) -> Path:
    path.write_text(outputs.model_dump_json())
    return path


@pytest.fixture
def outputs(local: LocalHosts, tmp_path: Path) -> Path:
    return file_of(local.outputs(), tmp_path / "outputs.json")


CLIENT = """
import json, os, sys, time
from monarch.actor import Actor, endpoint
from monarch.job import job_load
from monarch_infra import InfraJob

class Counter(Actor):
    def __init__(self):
        self.value = 0
    @endpoint
    def add(self):
        self.value += 1
        return self.value, os.getppid()

def call(mesh):
    procs = mesh.spawn_procs()
    try:
        return [said for _, said in procs.spawn("counter", Counter).add.call().get(timeout=30)]
    finally:
        procs.stop().get(timeout=30)

def tell(value):
    print(json.dumps(value), flush=True)
"""


def pids(local: LocalHosts, mesh: str) -> list[int]:
    return [pid(host) for host in local.find() if host.mesh == mesh]


# --- connecting -------------------------------------------------------------------------------------


def test_state_gives_meshes_by_name_that_answer(local: LocalHosts, outputs: Path) -> None:
    """T14: attributes, iteration and membership; an actor on each rank answers, spawned by that rank's worker."""
    said = answer(
        CLIENT
        + """
job = InfraJob.from_outputs(sys.argv[1])
state = job.state()
try:
    state.nosuch
except AttributeError as error:
    wrong = str(error)
names = [list(state), len(state), "trainers" in state, "nosuch" in state]
tell([call(state.trainers), call(state["loaders"]), names, wrong, job.active, state.dashboard_url])
""",
        outputs,
    )

    trainers, loaders, names, wrong, is_active, dashboard = said
    assert trainers == [[1, number] for number in pids(local, "trainers")]
    assert loaders == [[1, number] for number in pids(local, "loaders")]
    assert names == [["loaders", "trainers"], 2, True, False]
    assert "loaders, trainers" in wrong
    assert (is_active, dashboard) == (True, None)


def test_a_pickle_brings_another_process_to_the_same_hosts(local: LocalHosts, outputs: Path, tmp_path: Path) -> None:
    """Z1, Z2, T7: in another process and directory, from the pickle or without it, the same apply_id and hosts."""
    first = answer(
        CLIENT + "job = InfraJob.from_outputs(sys.argv[1]); job.state(); job.dump(sys.argv[2]); tell(job.apply_id)",
        outputs,
        tmp_path / "deep" / "job.pkl",
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    loaded = answer(
        CLIENT + "job = job_load(sys.argv[1]); tell([job.apply_id, call(job.state().trainers)])",
        tmp_path / "deep" / "job.pkl",
        cwd=elsewhere,
    )

    assert first == local.site.deployment
    assert loaded == [first, [[1, number] for number in pids(local, "trainers")]]
    assert os.listdir(elsewhere) == []


def test_the_pickle_is_small_and_names_no_host(outputs: Path) -> None:
    """Z1: below 2 kB, whatever the number of hosts, and nothing in it opens a door."""
    job = InfraJob.from_outputs(outputs)
    job._mark_applied()

    pickled = job.dumps()

    assert len(pickled) < 2000
    assert b"tcp://" not in pickled
    assert b"service<" not in pickled
    assert pickle.loads(pickled).apply_id == job.apply_id


def test_two_jobs_in_one_directory_do_not_touch_each_other(local: LocalHosts, few: LocalHosts, tmp_path: Path) -> None:
    """F12: each deployment has a file of its own, and none is Monarch's shared default."""
    here = tmp_path / "work"
    here.mkdir()
    one = file_of(local.outputs(), here / "one.json")
    two = file_of(few.outputs(deployment="2" * 32), here / "two.json")

    answer(CLIENT + "[InfraJob.from_outputs(file).state() for file in sys.argv[1:]]; tell(0)", one, two, cwd=here)

    kept = sorted(path.name for path in (here / ".monarch-infra").iterdir())
    assert kept == [f"{local.site.deployment[:8]}.job_state.pkl", "22222222.job_state.pkl"]
    assert not (here / ".monarch").exists()
    assert all(host.phase is Phase.READY for host in [*local.find(), *few.find()])


def test_an_explicit_path_is_used(outputs: Path, tmp_path: Path) -> None:
    """T7, T8: `cached_path` is written, through a symlink into a directory that is missing; None writes none."""
    link = tmp_path / "link.pkl"
    link.symlink_to(tmp_path / "missing" / "job.pkl")

    answer(CLIENT + "InfraJob.from_outputs(sys.argv[1]).state(sys.argv[2]); tell(0)", outputs, link)
    answer(CLIENT + "InfraJob.from_outputs(sys.argv[1]).state(None); tell(0)", outputs)

    assert (tmp_path / "missing" / "job.pkl").is_file()
    assert link.is_symlink()
    assert not (tmp_path / ".monarch-infra").exists()


# --- refusing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "there", "what"), [("monarch_version", "0.6.0", "Monarch"), ("python", "3.9", "Python")]
)
def test_other_versions_are_refused_at_once(
    local: LocalHosts, tmp_path: Path, field: str, there: str, what: str
) -> None:
    """X26: naming both versions, in less than a second, before Monarch opens a connection."""
    job = InfraJob.from_outputs(file_of(local.outputs(**{field: there}), tmp_path / "outputs.json"))
    here = dict(zip(("Monarch", "Python"), versions(), strict=True))[what]
    began = time.monotonic()

    with pytest.raises(NotReadyError) as caught:
        job.state()

    assert time.monotonic() - began < 1
    assert f"{what} {there}" in str(caught.value)
    assert here in str(caught.value)


def test_lost_hosts_are_named_at_once(few: LocalHosts, tmp_path: Path) -> None:
    """A dead worker is told by mesh and rank, and what to do about it; Monarch waits a minute for it."""
    job = InfraJob.from_outputs(file_of(few.outputs(), tmp_path / "outputs.json"))
    os.kill(pid(few.find()[1]), 9)
    until(lambda: few.find()[1].phase is Phase.ENDED)
    began = time.monotonic()

    with pytest.raises(NotReadyError, match=r"trainers\[1\]") as caught:
        job.state()

    assert time.monotonic() - began < 1
    assert "apply makes them again" in caught.value.problems[0].hint
    assert job.can_run(job) is False


def test_a_hole_in_a_mesh_is_refused(local: LocalHosts) -> None:
    """A HostMesh counts from 0: with rank 0 missing, rank 1 would answer as rank 0."""
    outputs = local.outputs()
    mesh = outputs.meshes["trainers"]
    holed = outputs.model_copy(update={"meshes": {"trainers": mesh.model_copy(update={"hosts": mesh.hosts[1:]})}})

    with pytest.raises(NotReadyError, match=r"trainers\[0\]"):
        connect.verify(holed)


def test_what_is_not_built_is_said(tmp_path: Path) -> None:
    """An option of a later release is refused at construction, and so is a file that is no outputs file."""
    for options in ({"direct": True}, {"gateway": 0}, {"name": "x"}):
        with pytest.raises(UsageError, match="not built yet"):
            InfraJob(**options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not built yet"):
        InfraJob.from_outputs(tmp_path / "outputs.json", credentials="client.pem")
    with pytest.raises(NotFoundError):
        InfraJob.from_outputs(tmp_path / "outputs.json").state()
    (tmp_path / "outputs.json").write_text('{"format_version": "2.0"}')
    with pytest.raises(UsageError, match="not an outputs file"):
        InfraJob.from_outputs(tmp_path / "outputs.json").state()
    with pytest.raises(UsageError, match="no job file"):
        InfraJob.from_outputs(tmp_path / "outputs.json").plan()


# --- living and ending ------------------------------------------------------------------------------


def test_kill_and_with_leave_the_hosts(local: LocalHosts, outputs: Path) -> None:
    """T9: hosts stay, the command that removes them is printed once, and another client still gets an answer."""
    done = python(
        CLIENT + "\nwith InfraJob.from_outputs(sys.argv[1]) as job:\n    job.state()\ntell(job.active)", outputs
    )

    assert json.loads(done.stdout.splitlines()[-1]) is True
    assert done.stderr.count(f"monarch-infra destroy --deployment {local.site.deployment}") == 1
    assert all(host.phase is Phase.READY for host in local.find())


def test_refresh_tells_that_hosts_changed(local: LocalHosts, tmp_path: Path) -> None:
    """J8: False while nothing changed, True once a host is another, and `can_run` no longer answers for it."""
    path = file_of(local.outputs(), tmp_path / "outputs.json")
    job = InfraJob.from_outputs(path)
    assert job.refresh() is True
    job._mark_applied()
    job._seen = None
    assert job.can_run(job) is True

    said = answer(
        CLIENT
        + """
job = InfraJob.from_outputs(sys.argv[1]); job.state(); first = job.refresh()
values = json.load(open(sys.argv[1])); values["meshes"].pop("loaders")
json.dump(values, open(sys.argv[1], "w"))
tell([first, job.refresh(), list(job.state()), job.refresh()])
""",
        path,
    )

    assert said == [False, True, ["trainers"], False]
    assert job.can_run(job) is False
    assert job.can_run("something else") is False


# --- ping -------------------------------------------------------------------------------------------

PING = "import sys, json; from monarch_infra import connect; from monarch_infra.model import Outputs\n" + (
    "outputs = Outputs.model_validate_json(open(sys.argv[1]).read())\n"
)


def test_ping_is_one_real_call_per_rank(local: LocalHosts, outputs: Path) -> None:
    """Each answer comes from a proc that the worker of that very rank spawned; nothing is left on the hosts."""
    said = answer(PING + "print(json.dumps([a.plain() for a in connect.ping(outputs)]))", outputs)

    monarch, minor = versions()
    assert [(a["mesh"], a["rank"], a["worker_pid"]) for a in said] == [
        *[("loaders", rank, number) for rank, number in enumerate(pids(local, "loaders"))],
        *[("trainers", rank, number) for rank, number in enumerate(pids(local, "trainers"))],
    ]
    assert {(a["monarch"], a["python"], a["generation"]) for a in said} == {(monarch, minor, 1)}
    assert all(0 < a["rtt_ms"] < 1000 for a in said)
    assert list(said[0]) == ["mesh", "rank", "generation", "host", "worker_pid", "monarch", "python", "rtt_ms"]
    until(lambda: not any(children(number) for number in [*pids(local, "loaders"), *pids(local, "trainers")]))


def test_ping_of_other_workers_than_expected_is_told(few: LocalHosts, tmp_path: Path) -> None:
    """A worker with another identity at the address is an error of ours; Monarch by itself ends the client for it."""
    text = few.outputs().model_dump_json()
    first = few.find()[0]
    assert first.worker is not None
    path = tmp_path / "outputs.json"
    path.write_text(text.replace(first.worker.proc_id, "service<abc>"))

    said = answer(
        PING
        + """
from monarch_infra.problem import NotReadyError
try:
    connect.ping(outputs)
except NotReadyError as error:
    print(json.dumps(str(error)))
""",
        path,
    )

    assert said == "hosts do not answer: A call to mesh `trainers` failed: its workers are not those of the outputs."


def children(number: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{number}/task/{number}/children").read_text().split()]
    except FileNotFoundError:
        return []


# --- with a job file and the engine -----------------------------------------------------------------


@pytest.fixture
def job_file(tmp_path: Path) -> Iterator[Path]:
    """A job file in a directory of its own; whatever a test applied of it is destroyed again."""
    try:
        install.require()
    except EngineError as error:
        pytest.skip(f"needs the engine: {error}")
    file = tmp_path / "mine" / "job.yaml"
    file.parent.mkdir()
    write(file, hosts=2)
    yield file
    InfraJob(file, kill="destroy").kill()
    assert processes(file.parent) == []


def write(file: Path, *, hosts: int, greeting: str = "hello") -> None:
    file.write_text(
        f"version: 1\nhosts: {hosts}\nruntime:\n  env: {{GREETING: {greeting}}}\n"
        "targets:\n  other: {provider: local}\n"
    )


def test_state_applies_by_itself_only_the_first_time(job_file: Path) -> None:
    """J5, X7, T13, F19: from an empty directory `state()` gives hosts; an edited file is refused with the difference
    and touches nothing; `auto_apply` adds hosts beside those that run, and never restarts one."""
    assert (InfraJob(job_file).active, InfraJob(job_file).apply_id) == (False, None)

    first = answer(CLIENT + "job = InfraJob(sys.argv[1]); tell([call(job.state().workers), job.apply_id])", job_file)
    write(job_file, hosts=3)
    with pytest.raises(PlanStaleError, match=r"workers\.hosts 2 -> 3") as caught:
        InfraJob(job_file).state()
    grown = answer(
        CLIENT
        + """
write = lambda text: open(sys.argv[1], "w").write(text)
asked = open(sys.argv[1]).read()
write(asked.replace("hosts: 3", "hosts: 2"))
job = InfraJob(sys.argv[1], auto_apply=True)
counters = job.state().workers.spawn_procs().spawn("counter", Counter)
before = [said for _, said in counters.add.call().get(timeout=30)]
write(asked)
pids = [said[1] for said in call(job.state().workers)]
tell([before, [said for _, said in counters.add.call().get(timeout=30)], pids, job.apply_id])
""",
        job_file,
    )

    (first_said, deployment), (before, after, pids_now, same) = first, grown
    assert "monarch-infra plan" in caught.value.next_command
    assert [said[0] for said in before] == [1, 1]
    assert after == [[2, number] for number in pids_now[:2]]
    assert pids_now[:2] == [number for _, number in first_said]
    assert len(pids_now) == 3
    assert same == deployment
    write(job_file, hosts=3, greeting="goodbye")
    with pytest.raises(RefusedError, match="more than adding"):
        InfraJob(job_file, auto_apply=True).state()
    assert processes(job_file.parent) == sorted(pids_now)


def test_hosts_that_cost_something_are_not_made_unasked(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F19: where hosts are not free, `state()` names the command and makes nothing."""
    monkeypatch.setattr(Local, "is_free", False)

    with pytest.raises(NotFoundError, match="nothing is applied") as caught:
        InfraJob(job_file, "other").state()

    assert caught.value.next_command == f"monarch-infra apply {job_file} --target other"
    assert processes(job_file.parent) == []


def test_plan_apply_and_destroy_from_python(job_file: Path) -> None:
    """J3, J4, T5, T6, T9: plan shows what apply does, twice is nothing, `kill="destroy"` leaves no process, and the
    next life has another id."""
    job = InfraJob(job_file, kill="destroy")
    assert not job.plan().is_empty

    job.apply()

    first = job.apply_id
    assert job.plan().is_empty
    assert (job.active, job.can_run(InfraJob(job_file)), len(processes(job_file.parent))) == (True, True, 2)
    with job:
        pass
    assert (job.active, job.apply_id, processes(job_file.parent)) == (False, None, [])
    job.apply()
    assert job.apply_id not in (None, first)


# --- Monarch's own command --------------------------------------------------------------------------


def test_monarchs_own_command_works_on_it(few: LocalHosts, tmp_path: Path) -> None:
    """T1: `monarch apply`, `exec` and `kill` on a module that holds an InfraJob; the hosts stay."""
    path = file_of(few.outputs(), tmp_path / "outputs.json")
    (tmp_path / "mine.py").write_text(
        f"from monarch_infra import InfraJob\njob = InfraJob.from_outputs({str(path)!r})\n"
    )
    before = pids(few, "trainers")

    applied = monarch(tmp_path, "apply", "mine.job")
    executed = monarch(tmp_path, "exec", "--one", "printenv", "HYPERACTOR_PROCESS_NAME")
    killed = monarch(tmp_path, "kill")

    assert "Job is ready" in applied.stdout
    assert executed.returncode == 0
    assert "trainers" in executed.stdout + executed.stderr
    assert killed.returncode == 0
    assert "hosts stay up" in killed.stderr
    assert pids(few, "trainers") == before
    assert all(is_alive(number) for number in before)


def monarch(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    paths = [str(where), *filter(None, sys.path)]
    command: list[Any] = [
        sys.executable,
        "-c",
        "import sys; from monarch.tools.cli import main; sys.exit(main())",
        *words,
    ]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=where,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
