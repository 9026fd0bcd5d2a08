"""Local hosts are real processes with real Monarch workers; nothing here is faked."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from monarch.actor import ProcId

from monarch_infra.model import Host, MeshSpec, Phase
from monarch_infra.problem import PartError
from monarch_infra.providers.local import PROVIDER, directory
from monarch_infra.providers.local import hosts as verbs
from real.on_this_machine import DEPLOYMENT, LocalHosts, answer, is_alive, pid, processes, python, until

ONE = MeshSpec(name="trainers", hosts=1)
TWO = MeshSpec(name="trainers", hosts=2)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalHosts]:
    hosts = LocalHosts(tmp_path)
    yield hosts
    hosts.end()


def one(local: LocalHosts) -> Host:
    local.make(ONE)
    return local.ready(1)[0]


# --- what a host is ---------------------------------------------------------------------------------

CALL = """
import json, sys
from monarch.actor import Actor, endpoint
from monarch_infra import connect
from monarch_infra.model import Outputs

class Witness(Actor):
    @endpoint
    def tell(self):
        import os, subprocess, theirs
        child = subprocess.Popen(["sleep", "1000"])
        return dict(os.environ), os.getcwd(), theirs.VALUE, child.pid

state = connect.connect(Outputs.model_validate_json(sys.argv[1]))
procs = state.trainers.spawn_procs()
told = [said for _, said in procs.spawn("witness", Witness).tell.call().get(timeout=30)]
print(json.dumps(told), flush=True)
"""


def test_an_actor_sees_the_jobs_world_and_not_the_operators(local: LocalHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mesh's env, the job's directory and its modules reach an actor; the operator's variables do not; and
    what actors started goes with the host."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the operator's")
    (local.site.workdir / "theirs.py").write_text("VALUE = 42")
    (local.site.workdir / "fcntl.py").write_text("raise ImportError('shadowed')")
    local.make(TWO.model_copy(update={"env": {"GREETING": "hello"}}))
    found = local.ready(2)

    told = answer(CALL, local.outputs().model_dump_json())

    assert [env.get("GREETING") for env, *_ in told] == ["hello", "hello"]
    assert not any("AWS_SECRET_ACCESS_KEY" in env or "PYTHONPATH" in env for env, *_ in told)
    assert [env["HYPERACTOR_PROCESS_NAME"].rpartition("@ ")[2] for env, *_ in told] == ["trainers[0]", "trainers[1]"]
    assert [(cwd, value) for _, cwd, value, _ in told] == [(str(local.site.workdir), 42)] * 2
    PROVIDER.remove("trainers", found)
    until(lambda: not any(is_alive(child) for *_, child in told))


def test_a_host_that_was_made_is_found_with_its_identity(local: LocalHosts) -> None:
    """`find` tells what `make` told, and the identity is one that Monarch reads."""
    made = local.make(TWO)

    found = local.ready(2)

    assert [host.phase for host in made.hosts] == [Phase.BOOTING] * 2
    assert [host.model_copy(update={"phase": Phase.BOOTING}) for host in found] == list(made.hosts)
    for host in found:
        assert host.worker is not None
        assert str(ProcId.from_string(host.worker.proc_id)) == host.worker.proc_id


def test_eight_at_once_never_want_one_port(local: LocalHosts) -> None:
    """Every host gets a port of its own, however many start together."""
    local.make(MeshSpec(name="trainers", hosts=8))

    found = local.ready(8)

    assert len({host.worker.address for host in found if host.worker}) == 8
    assert len({host.worker.proc_id for host in found if host.worker}) == 8


def test_a_host_survives_its_maker(local: LocalHosts) -> None:
    """A killed command, a closed terminal and Ctrl-C leave the hosts alone."""
    python(LAUNCH + "made()\nos.kill(os.getpid(), signal.SIGKILL)", local.site.home.parent, returncodes=[-9])

    (host,) = local.ready(1)

    assert os.getsid(pid(host)) == pid(host) != os.getsid(0)
    descriptors = Path(f"/proc/{pid(host)}/fd")
    assert [os.readlink(descriptors / str(n)) for n in range(3)] == [
        "/dev/null",
        *[f"{host.provider_id}/{directory.LOG}"] * 2,
    ]


# --- what is found ----------------------------------------------------------------------------------


def test_a_killed_host_has_ended_and_the_others_are_untouched(local: LocalHosts) -> None:
    """kill -9 of one host is seen at once; its successor is another generation with another address and identity."""
    local.make(TWO)
    first, second = local.ready(2)
    pids = pid(first), pid(second)

    os.kill(pids[1], signal.SIGKILL)
    until(lambda: local.find()[1].phase is Phase.ENDED)

    assert local.find()[0] == first
    assert local.find()[1].reason == "its worker ended without a word in its log"
    again = local.make(TWO, {1: 1})
    assert [host.phase for host in again.hosts] == [Phase.ENDED]
    local.make(TWO, {1: 2})
    kept, ended, successor = until(lambda: (found := local.find())[2:] and found[2].phase is Phase.READY and found)
    assert pid(kept) == pids[0]
    assert (ended.generation, successor.generation) == (1, 2)
    assert successor.worker is not None
    assert second.worker is not None
    assert successor.worker.address != second.worker.address
    assert successor.worker.proc_id != second.worker.proc_id


def test_a_host_that_cannot_start_says_why(local: LocalHosts) -> None:
    """A worker that ends before it listens is an ended host with the last line of its log, not a silent nothing."""
    local.make(ONE.model_copy(update={"env": {"PYTHONHOME": "/nonexistent"}}))

    (host,) = until(lambda: [host for host in local.find() if host.phase is Phase.ENDED])

    assert host.reason.startswith("its worker ended; last line of its log: ")


def test_what_was_only_intended_is_no_host(local: LocalHosts) -> None:
    """A directory in which nothing was started is not found, is used by the next make, and is cleared away."""
    path = directory.of(local.site.home, "trainers", 0, 1)
    lock = directory.take(path, wait_s=0, makes=True)
    assert lock is not None
    directory.write(path / directory.HOST, {"deployment": DEPLOYMENT, "address": "tcp://127.0.0.1:1", "proc_id": "x"})
    os.close(lock)

    assert local.find() == []
    host = one(local)
    assert processes(local.site.home) == [pid(host)]


def test_clear_leaves_no_directory(local: LocalHosts) -> None:
    """After the last host nothing of ours is on the disk; while one is there, `clear` says so."""
    host = one(local)

    assert PROVIDER.clear(local.site) == [f"process host {host.provider_id}"]
    PROVIDER.remove("trainers", [host])
    intended = directory.of(local.site.home, "loaders", 0, 1)
    intended.mkdir(parents=True)
    directory.write(intended / directory.HOST, {"deployment": DEPLOYMENT})

    assert PROVIDER.clear(local.site) == []
    assert not local.site.home.exists()


def test_another_deployment_is_left_alone(local: LocalHosts, tmp_path: Path) -> None:
    """Hosts of an earlier life of the job are neither found nor doubled nor removed; the plan names the command."""
    theirs = LocalHosts(tmp_path, deployment="f" * 32)
    try:
        theirs.make(ONE)
        (host,) = theirs.ready(1)

        refused = local.make(ONE)
        verdicts = list(PROVIDER.preflight(local.site, {"trainers": 1}))

        assert local.find() == []
        assert refused.hosts == ()
        assert f"monarch-infra destroy --deployment {'f' * 32}" in refused.refused[0].reason
        assert [verdict.text for verdict in verdicts] == [
            "1 host of this job still lives under another deployment, ffffffff; "
            f"to remove: monarch-infra destroy --deployment {'f' * 32}"
        ]
        assert PROVIDER.clear(local.site) == []
        assert theirs.find() == [host]
    finally:
        theirs.end()


# --- ending -----------------------------------------------------------------------------------------


def test_removing_twice_is_fine_and_leaves_no_process(local: LocalHosts) -> None:
    """A removed host has neither process nor directory, and removing it again is no error."""
    local.make(MeshSpec(name="trainers", hosts=4))
    found = local.ready(4)

    PROVIDER.remove("trainers", found)
    PROVIDER.remove("trainers", found)

    assert (local.find(), processes(local.site.home)) == ([], [])
    assert not any(Path(host.provider_id).exists() for host in found)


def test_a_host_that_is_only_starting_can_be_removed(local: LocalHosts) -> None:
    """Removing right after making waits for the process to say its number, and ends it."""
    made = local.make(TWO)

    PROVIDER.remove("trainers", made.hosts)

    assert (local.find(), processes(local.site.home)) == ([], [])


def test_a_worker_that_ignores_the_request_is_killed(local: LocalHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process hears no SIGTERM; it goes by SIGKILL."""
    monkeypatch.setattr(verbs, "TERM_S", 0.2)
    host = one(local)
    os.kill(pid(host), signal.SIGSTOP)

    PROVIDER.remove("trainers", [host])

    assert processes(local.site.home) == []


def test_only_a_hosts_own_directory_is_removed(local: LocalHosts, tmp_path: Path) -> None:
    """A provider id that is no directory of that host is refused: nothing else is ever deleted."""
    precious = tmp_path / "precious"
    precious.mkdir()
    host = one(local)

    with pytest.raises(PartError, match="not its directory"):
        PROVIDER.remove("trainers", [host.model_copy(update={"provider_id": str(precious)})])

    assert precious.exists()


# --- killed at any instruction ----------------------------------------------------------------------

LAUNCH = """
import os, signal, sys
from pathlib import Path
from real.on_this_machine import LocalHosts
from monarch_infra.model import MeshSpec
from monarch_infra.providers.local import PROVIDER, directory, hosts

local = LocalHosts(Path(sys.argv[1]))
made = lambda: local.make(MeshSpec(name="trainers", hosts=1))

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def after(module, name):
    act = getattr(module, name)
    setattr(module, name, lambda *a, **k: (act(*a, **k), die()))
"""

MAKING = {
    "with an empty directory": "directory.os.open = die",
    "with the lock": "after(directory, 'take')",
    "before it is written whose host it is": "directory.write = die",
    "before the process": "hosts.subprocess.Popen = die",
    "after the process": "after(hosts.subprocess, 'Popen')",
}


@pytest.mark.parametrize("point", MAKING)
def test_a_make_killed_anywhere_is_finished_by_the_next(local: LocalHosts, point: str) -> None:
    """Whatever an interrupted make left, the next one gives exactly one host and one process."""
    python(f"{LAUNCH}\n{MAKING[point]}\nmade()", local.site.home.parent, returncodes=[-9])

    standing = local.find()
    made = local.make(ONE)
    (host,) = local.ready(1)

    assert made.refused == ()
    assert processes(local.site.home) == [pid(host)]
    assert [found.worker for found in standing] in ([], [host.worker])


REMOVING = {
    "before the signal": "hosts._signal = die",
    "after the signal": "after(hosts, '_signal')",
    "before the deletion": "directory.delete = die",
    "in the deletion": "directory.shutil.rmtree = lambda path, **_: path.exists() and die()",
}


@pytest.mark.parametrize("point", REMOVING)
def test_a_remove_killed_anywhere_is_finished_by_the_next(local: LocalHosts, point: str) -> None:
    """Whatever an interrupted remove left, the next one and a clear leave nothing."""
    host = one(local)

    code = f"{LAUNCH}\n{REMOVING[point]}\nPROVIDER.remove('trainers', local.find())"
    python(code, local.site.home.parent, returncodes=[-9])
    PROVIDER.remove("trainers", [host])

    assert PROVIDER.clear(local.site) == []
    assert processes(local.site.home) == []
    assert not local.site.home.exists()


def test_a_second_process_for_a_host_ends_itself(local: LocalHosts) -> None:
    """Only who holds the lock is the host: a process started twice leaves quietly and changes nothing."""
    host = one(local)
    before = directory.read(Path(host.provider_id) / directory.WORKER)

    second = start_by_hand(Path(host.provider_id))

    assert (second.returncode, second.stdout) == (0, b"")
    assert directory.read(Path(host.provider_id) / directory.WORKER) == before


def test_a_process_whose_directory_was_deleted_ends_itself(tmp_path: Path) -> None:
    """A process that comes late, with the lock of a directory that is gone, does not become a host."""
    path = tmp_path / "trainers" / "0.1"
    path.mkdir(parents=True)

    late = start_by_hand(path, "rm -r {path}; mkdir {path}; touch {path}/lock")

    assert (late.returncode, late.stdout) == (0, b"")
    assert sorted(os.listdir(path)) == ["lock"]


def start_by_hand(path: Path, meanwhile: str = "true") -> subprocess.CompletedProcess[bytes]:
    lock = os.open(path / directory.LOCK, os.O_RDWR | os.O_CREAT)
    with verbs.socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        subprocess.run(meanwhile.format(path=path), shell=True, check=True)
        try:
            return subprocess.run(
                [sys.executable, str(verbs.PROGRAM), str(path), str(listener.fileno()), str(lock)],
                pass_fds=(listener.fileno(), lock),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=20,
            )
        finally:
            os.close(lock)


# --- what a change means ----------------------------------------------------------------------------


def test_only_what_a_process_is_started_with_restarts_it() -> None:
    """The environment and the versions restart a worker; labels and resources have no effect on a process."""
    old = MeshSpec(name="trainers", hosts=1, env={"A": "1", "B": "2"}, python="3.11", labels={"team": "x"})
    new = MeshSpec(name="trainers", hosts=3, env={"A": "9", "C": "3"}, python="3.12", resources={"gpus": 8})

    change = PROVIDER.diff(old, new)

    assert [(r.path, r.old, r.new) for r in change.restart] == [
        ("env.A", "1", "9"),
        ("env.B", "2", None),
        ("env.C", None, "3"),
        ("python", "3.11", "3.12"),
    ]
    assert change.replace == ()


def test_another_python_than_this_one_is_told_before_anything_starts() -> None:
    """A local host runs the Python and the Monarch of the command; a job file that asks for others is wrong here."""
    assert [problem.summary for problem in PROVIDER.check(MeshSpec(name="a", hosts=1, python="3.9"))] == [
        "Python version not available on this machine"
    ]
    assert list(PROVIDER.check(MeshSpec(name="a", hosts=1))) == []
