"""The user stories, typed as they are told: the installed command, the real engine, real Monarch workers."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from e2e.shell import Shell, is_alive

HOSTS_AND_NOTHING_ELSE = {"workers/0.1", "workers/1.1"}


def test_first_run(shell: Shell) -> None:
    """U1: init, apply with one `yes`, hello from both hosts, nothing to do, destroy by typing the job's name."""
    screen = ""
    assert shell("init").out == "wrote job.yaml\nwrote hello.py\n"
    assert len(shell.path.joinpath("job.yaml").read_text().splitlines()) <= 7

    applying = shell.terminal("monarch-infra", "apply")
    applying.read_until("Type yes to apply: ")
    assert shell.hosts() == {}
    applying.type("yes")
    screen += applying.end()
    hello = shell.run("python", "hello.py")
    again = shell("apply")
    pids = shell.hosts()
    destroying = shell.terminal("monarch-infra", "destroy")
    destroying.read_until("Type the job's name, hello, to destroy: ")
    destroying.type("hello")
    screen += destroying.end()

    assert hello.out == "hello from workers[0]\nhello from workers[1]\n"
    assert again.out.endswith("\nnothing to do: 1 mesh matches, 2 hosts\n")
    assert set(pids) == HOSTS_AND_NOTHING_ELSE
    assert 'Done: 2 created · 2 hosts serve\nConnect: InfraJob("job.yaml").state()\n' in screen
    assert len(re.findall(r"^.*Type .*: ", screen, flags=re.MULTILINE)) == 2
    assert not re.search("passphrase|password|log ?in|token", screen, flags=re.IGNORECASE)
    assert shell.hosts() == {}


def test_first_run_without_the_engine(shell: Shell) -> None:
    """U1: where the engine is missing, one line names the command that gets it; exit 13, and nothing was begun."""
    shell("init")
    missing = {"MONARCH_INFRA_CACHE": str(shell.path / "cache")}

    done = shell("apply", "--yes", code=13, env=missing)

    assert done.out == ""
    assert done.err.startswith("error: the engine is not installed\n")
    assert done.err.endswith("\nnext: monarch-infra engine install\n")
    assert shell("validate", env=missing).out == "job.yaml: ok\n"
    assert shell("status", env=missing).out == "hello on local    nothing was applied\n"
    assert sorted(os.listdir(shell.path)) == ["hello.py", "job.yaml"]


TYPO = """\
# yaml-language-server: $schema=https://monarch-infra.dev/schema/job.v1.json
version: 1
name: llama-rl
labels: {team: nlp, cost-center: r42}

meshes:
  trainers:
    hosts: 4
    resources: {acelerators: "H100:8", fabric: required}
"""

TYPO_TOLD = """\
error: setting not known
  job.yaml:9:17
  9 |     resources: {acelerators: "H100:8", fabric: required}
    |                 ^
A mesh's resources have no setting `acelerators`.
hint: did you mean `accelerators`?
"""

TEN_MISTAKES = """\
version: "1"
name: My Job
meshes:
  Trainers: 4
  loaders:
    hosts: 0
    resources: {acelerators: "H100:8", memory: 64}
    env: {DEBUG: 1}
    on_partial: drop
    hosts: 2
timeouts: {ready: 15}
"""

TEN_PLACES = ["1:10", "2:7", "4:3", "6:12", "7:17", "7:48", "8:18", "9:17", "10:5", "11:19"]


def without_network() -> list[str]:
    """Return what stands before a command to take its network away, or nothing where this machine forbids it."""
    for words in (["unshare", "-n"], ["unshare", "-rn"]):
        if shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True).returncode == 0:
            return words
    return []


def test_typo(shell: Shell) -> None:
    """U2: the promised block, word for word; exit 65; the same as a document; without a network."""
    shell.write(TYPO)

    told = shell.run(*without_network(), "monarch-infra", "validate", code=65)
    document = shell("validate", "--json", code=65)

    assert (told.out, told.err) == ("", TYPO_TOLD)
    error = document.json["error"]
    assert (error["code"], error["summary"]) == (65, "setting not known")
    assert error["where"] == {"file": "job.yaml", "line": 9, "column": 17}
    assert error["hint"] == "did you mean `accelerators`?"
    assert document.json["format_version"] == "1.0"
    assert document.err == TYPO_TOLD


@pytest.mark.parametrize("command", ["validate", "plan", "apply"])
def test_ten_mistakes_at_once(shell: Shell, command: str) -> None:
    """U2, X41: the ten commonest mistakes are ten blocks with place, line, caret and reason, whatever was typed."""
    shell.write(TEN_MISTAKES)

    told = shell.run(*without_network(), "monarch-infra", command, code=65)

    blocks = told.err.removesuffix("\n").split("\n\n")
    assert told.out == ""
    assert [block.splitlines()[1] for block in blocks] == [f"  job.yaml:{place}" for place in TEN_PLACES]
    for block in blocks:
        summary, _, line, caret, reason, *_ = block.splitlines()
        assert summary.startswith("error: ")
        number, column = map(int, block.splitlines()[1].rsplit(":", 2)[1:])
        assert line == f"  {number} | {TEN_MISTAKES.splitlines()[number - 1]}"
        assert caret.index("^") - caret.index("| ") - 2 == column - 1
        assert reason.endswith((".", ":"))
    assert not (shell.path / ".monarch-infra").exists()


GROWING = """\
version: 1
name: llama-rl
meshes:
  trainers: 1
  generators: {hosts: 4}
"""

RUNNING = """
job = InfraJob("job.yaml")
old = job.state()
actors = old.generators.spawn_procs().spawn("counter", Counter)
tell([count(actors), job.refresh()])
wait()
changed = job.refresh()
new = job.state()
more = new.generators.spawn_procs()
tell([changed, job.refresh(), count(actors), count(more.spawn("counter", Counter)), count(actors)])
more.stop().get(timeout=60)
"""


def test_scale_up(shell: Shell) -> None:
    """U9, J8: four more hosts beside those that run; nothing restarts, and a program that runs through sees them."""
    shell.write(GROWING)
    shell("apply", "--yes")
    pids = shell.hosts()
    client = shell.client(RUNNING)
    before, moved_early = client.says()

    shell.write(GROWING.replace("hosts: 4", "hosts: 8"))
    planned = shell("plan")
    applied = shell("apply", "--yes")
    client.go_on()
    moved, moved_again, kept, grown, still = client.says()
    client.end()

    own = [pids[f"generators/{rank}.1"] for rank in range(4)]
    assert planned.out.splitlines()[2:] == [
        "  + 4   ~ 0   ± 0   - 0 hosts",
        "  +  generators[4-7]  hosts 4 -> 8",
    ]
    assert "Done: 4 created · 9 hosts serve\n" in applied.out
    assert {name: shell.hosts()[name] for name in pids} == pids
    assert (moved_early, moved, moved_again) == (False, True, False)
    assert before == [[1, pid] for pid in own]
    assert kept == [[2, pid] for pid in own]
    assert still == [[3, pid] for pid in own]
    assert grown == [[1, shell.hosts()[f"generators/{rank}.1"]] for rank in range(8)]


def test_end(shell: Shell) -> None:
    """U19: destroy lists what goes and wants the job's name; then no process, no directory and no state is left."""
    shell.write("version: 1\nname: llama-rl\nmeshes: {trainers: 2, loaders: 1}\n")
    shell("apply", "--yes")
    pids = shell.hosts()
    deployment = shell("status", "--json").json["deployment"]

    wrong = shell.terminal("monarch-infra", "destroy")
    wrong.read_until("to destroy: ")
    wrong.type("yes")
    refused = wrong.end(code=8)
    kept = shell.hosts()
    right = shell.terminal("monarch-infra", "destroy")
    right.read_until("Type the job's name, llama-rl, to destroy: ")
    right.type("llama-rl")
    screen = right.end()

    assert kept == pids
    assert "nothing was changed" in refused.lower()
    assert "  + 0   ~ 0   ± 0   - 3 hosts   and the deployment ends\n" in screen
    assert re.findall(r"^  -  (\S+) +destroyed$", screen, flags=re.MULTILINE) == ["loaders[0]", "trainers[0-1]"]
    assert f"Done: 3 deleted · nothing of deployment {deployment[:8]} remains\n" in screen
    assert not any(is_alive(Path(f"/proc/{pid}")) for pid in pids.values())
    assert list(shell.path.rglob("hosts")) == []
    assert shell("status").out == "llama-rl on local    nothing was applied\n"
    assert shell("destroy", "--yes").out.endswith("nothing to do: nothing stands\n")
