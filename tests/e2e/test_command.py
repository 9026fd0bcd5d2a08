"""The command line as a contract: exit codes, documents, bytes, colours, and what is printed being true."""

import json
import re
import shutil
from pathlib import Path

import pytest

from e2e.shell import BIN, Shell

CLOCK = re.compile(r"\b\d{1,2}:\d{2}\b|\b\d+(\.\d+)? ?(ms|s|min)\b|\b20\d\d-\d\d-\d\d\b")
DIGEST = re.compile(r"\b(spec|state|deployment) [0-9a-f]{7,8}\b")


# --- wrong command lines -----------------------------------------------------------------------------

WRONG = ["--nosuch", "nosuch", "plan --nosuch", "plan a.yaml b.yaml", "apply --yes=3", "plan nosuch.yaml", "plan ."]


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_line_is_64(standing: Shell, line: str) -> None:
    """E.2: never click's 2, which means changes; one error, and what to type instead."""
    done = standing(*line.split(), code=64)

    assert done.out == ""
    assert done.err.startswith("error: ")
    assert "hint: " in done.err


NOT_BUILT_FLAGS = """\
init --from task.sky.yaml
plan --out p.mplan
plan --offline
plan --replace workers[0]
plan --refresh-only
plan --show script
plan --format markdown
plan --mesh workers[0]
apply --run true
apply --replace workers[0]
apply --extend 4h
apply --new
apply --from-pr 1
apply --lock-timeout 5m
apply --timeout 5m
status --watch
status --cached
ping --direct
ping --gateway 0
engine install operator
"""
NOT_BUILT_COMMANDS = """\
show drift logs ssh exec run sync open reap scale review unlock history import convert export credentials renew ps
doctor offers completion
"""

EACH = """
import io, json, sys, contextlib
from monarch_infra.cli import main
for line in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        try:
            main(line.split())
        except SystemExit as end:
            print(json.dumps([line, end.code, said.getvalue().splitlines()[:1]]))
"""


def test_no_command_is_a_wrong_command_line_with_all_commands(standing: Shell) -> None:
    """Without a command the help is printed, where it is not taken for what was asked for."""
    done = standing(code=64)

    assert (done.out, done.err.split()[:2]) == ("", ["Usage:", "monarch-infra"])


def test_what_is_not_built_says_so(standing: Shell) -> None:
    """E.1, E.2: every command and flag of the catalogue is either there or answers `not built yet`, exit 64."""
    lines = [*NOT_BUILT_FLAGS.splitlines(), *NOT_BUILT_COMMANDS.split(), "ssh workers[0]", "exec --mesh workers -- df"]

    done = standing.run("python", "-c", EACH, json.dumps(lines))

    assert [json.loads(line) for line in done.out.splitlines()] == [
        [line, 64, ["error: not built yet"]] for line in lines
    ]
    assert "error: not built yet" in standing("doctor", code=64).err


def test_a_target_that_is_a_mesh_is_explained(standing: Shell) -> None:
    """E.1's trap: `--target` means a subset of resources elsewhere; ours names an environment."""
    told = standing("plan", "--target", "workers", code=6).err

    assert "`workers` is a mesh" in told
    assert "hint: use `--mesh workers`\n" in told


# --- asking ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["apply"], ["destroy"], ["apply", "--no-input"], ["destroy", "--json"]])
def test_where_nobody_can_answer_nothing_is_done(standing: Shell, shell: Shell, words: list[str]) -> None:
    """E.3: without a terminal and without `--yes` it is exit 64 at once, with what to add; nothing is touched."""
    job = standing if words[0] == "destroy" else shell
    job.write("version: 1\nmeshes: {workers: 2}\n")
    before = job.hosts()

    told = job(*words, code=64).err

    assert "error: approval needed\n" in told
    assert "--yes" in told
    assert job.hosts() == before


def test_an_answer_that_is_not_yes_changes_nothing(shell: Shell) -> None:
    """C13: anything but `yes` is a no; exit 8, no host, no state."""
    shell.write("version: 1\nhosts: 1\n")

    for answer in ("", "y"):
        asked = shell.terminal("monarch-infra", "apply")
        asked.read_until("Type yes to apply: ")
        asked.type(answer)
        asked.end(code=8)

    assert shell("status").out == "hello on local    nothing was applied\n"
    assert shell.hosts() == {}


# --- exit codes --------------------------------------------------------------------------------------


def test_exit_codes_of_a_plan(standing: Shell) -> None:
    """C12: 0 with or without changes, 2 for changes only when asked; a mesh or target that is not there is 6."""
    standing("plan", "--detailed-exitcode")
    standing("plan", "--destroy")
    standing("plan", "--destroy", "--detailed-exitcode", code=2)
    standing("plan", "--mesh", "nosuch", code=6)
    standing("plan", "--target", "nosuch", code=6)
    standing("output", "nosuch", code=6)
    standing("ping", "--mesh", "nosuch", code=6)


def test_what_was_never_applied_has_no_outputs(shell: Shell) -> None:
    """`output` and `ping` of a job without hosts name the command that makes them."""
    shell.write("version: 1\nhosts: 1\n")

    assert shell("output", code=6).err.endswith("next: monarch-infra apply\n")
    assert shell("ping", code=12).err.endswith("next: monarch-infra apply\n")


def test_an_unknown_failure_is_1_or_255_and_no_traceback(shell: Shell) -> None:
    """A broken state is told with its place; nothing is guessed and nothing is written over it."""
    shell.write("version: 1\nhosts: 1\n")
    state = shell.path / ".monarch-infra/state/.pulumi/stacks/monarch-infra/hello-local.json"
    state.parent.mkdir(parents=True)
    state.write_text('{"version": 3, "checkp')

    told = shell("plan", code=13).err

    assert str(state) in told
    assert state.read_text() == '{"version": 3, "checkp'


# --- documents ---------------------------------------------------------------------------------------

SUCCEEDS = ["validate", "plan", "plan --destroy", "apply --yes", "status", "output", "ping", "version"]
FAILS = {
    "validate nosuch.yaml": 64,
    "plan --target nosuch": 6,
    "plan --nosuch": 64,
    "plan --offline": 64,
    "apply --target nosuch": 6,
    "destroy": 64,
    "status --target nosuch": 6,
    "output nosuch": 6,
    "ping --mesh nosuch": 6,
    "doctor": 64,
}


@pytest.mark.parametrize("line", SUCCEEDS)
def test_json_is_one_document(standing: Shell, line: str) -> None:
    """E.3: stdout is one document with its `format_version`, and nothing else."""
    document = standing(*line.split(), "--json").json

    assert document["format_version"] == "1.0"
    assert "error" not in document


@pytest.mark.parametrize("line", FAILS)
def test_json_of_a_failure_is_one_document_too(standing: Shell, line: str) -> None:
    """E.3: also on failure there is a document, its code is the exit code, and people read the same on stderr."""
    done = standing(*line.split(), "--json", code=FAILS[line])

    error = done.json["error"]
    assert done.json["format_version"] == "1.0"
    assert error["code"] == FAILS[line]
    assert {"code", "summary", "where", "hint"} <= set(error)
    assert done.err.startswith(f"error: {error['summary']}\n")


def test_a_flag_may_come_from_the_environment(standing: Shell) -> None:
    """E.3: `MONARCH_INFRA_JSON=1` is `--json`, on success and on failure; so are the target and the job file."""
    asked = {"MONARCH_INFRA_JSON": "1"}

    assert standing("plan", env=asked).json["is_empty"] is True
    standing("plan", "--destroy", code=2, env={"MONARCH_INFRA_DETAILED_EXITCODE": "1"})
    assert "no such target" in standing("plan", code=6, env={"MONARCH_INFRA_TARGET": "nosuch"}).err
    assert standing("plan", "--target", "nosuch", code=6, env=asked).json["error"]["code"] == 6


def test_documents_of_a_life(shell: Shell) -> None:
    """apply and destroy with `--json` and `--yes` tell the plan and what stands afterwards."""
    shell.write("version: 1\nhosts: 1\n")

    applied = shell("apply", "--json", "--yes").json
    destroyed = shell("destroy", "--json", "--yes").json

    assert [change["action"] for change in applied["plan"]["changes"]] == ["+"]
    assert [host["rank"] for host in applied["outputs"]["meshes"]["workers"]["hosts"]] == [0]
    assert applied["unfinished"] == {}
    assert [change["action"] for change in destroyed["plan"]["changes"]] == ["-"]
    assert destroyed["outputs"] is None


def test_hosts_whose_state_is_lost_are_removed_by_their_deployment(shell: Shell) -> None:
    """U19: without the state `destroy --deployment ID` still finds what carries the id, removes it, and says so."""
    shell.write("version: 1\nhosts: 2\n")
    shell("apply", "--yes")
    deployment = shell("output", "deployment").out.strip()
    shutil.rmtree(shell.path / ".monarch-infra" / "state")

    warned = shell("plan").out
    removed = shell("destroy", "--deployment", deployment, "--yes", "--json").json

    assert f"monarch-infra destroy --deployment {deployment}" in warned
    assert (removed["format_version"], removed["deployment"], removed["removed"]) == ("1.0", deployment, 2)
    assert shell.hosts() == {}
    shell("destroy", "--deployment", deployment, "--yes", code=6)


# --- looking -----------------------------------------------------------------------------------------


def test_ping_answers_come_from_the_workers(standing: Shell) -> None:
    """The pids in `ping --json` are those of the hosts' processes; every field has its type."""
    answers = standing("ping", "--json").json["hosts"]

    assert [(a["mesh"], a["rank"], a["generation"]) for a in answers] == [("workers", 0, 1), ("workers", 1, 1)]
    assert [a["worker_pid"] for a in answers] == list(standing.hosts().values())
    kinds = {"host": str, "monarch": str, "python": str, "rtt_ms": float}
    assert all(isinstance(answer[name], kind) for answer in answers for name, kind in kinds.items())
    assert set(answers[0]) == {*kinds, "mesh", "rank", "generation", "worker_pid"}
    assert [line.split()[0] for line in standing("ping").out.splitlines()] == ["workers[0]", "workers[1]"]


def test_output_of_a_field(standing: Shell) -> None:
    """`output FIELD` prints a string bare, for a shell to use, and anything else as JSON."""
    whole = standing("output", "--json").json

    assert standing("output", "deployment").out == whole["deployment"] + "\n"
    assert standing("output", "deployment", "--json").json == whole["deployment"]
    assert standing("output", "meshes.workers.hosts.1.rank").out == "1\n"
    assert standing("output", "meshes.workers").json == whole["meshes"]["workers"]
    assert "meshes" in standing("output", "nosuch", code=6).err


def test_status_tells_what_the_machine_says(standing: Shell) -> None:
    """`status --json` names the deployment of the outputs and every mesh with what was asked for and what serves."""
    told = standing("status", "--json").json

    assert told["deployment"] == standing("output", "deployment").out.strip()
    assert told["meshes"] == {"workers": {"wanted": 2, "serving": 2, "notes": []}}
    assert (told["job"], told["target"], told["changed"]) == ("hello", "local", [])


# --- bytes -------------------------------------------------------------------------------------------


def test_the_same_input_gives_the_same_bytes(shell: Shell, tmp_path: Path) -> None:
    """E.3, C8: stdout of validate, plan, apply, output and destroy holds no clock and no counter; two lives of one
    job differ in their digests only."""
    lives = []
    for life in ("one", "two"):
        here = Shell(tmp_path / life / "hello", MONARCH_INFRA_COLOR="never")
        here.path.mkdir(parents=True)
        here.write("version: 1\nmeshes: {a: 1, b: 1}\n")
        texts = []
        try:
            for words in (["validate"], ["plan"], ["apply", "--yes"], ["apply"], ["output"]):
                once = here(*words).out
                assert life == "two" or words == ["apply", "--yes"] or here(*words).out == once
                texts.append("" if words == ["output"] else once)
            texts.append(here("destroy", "--yes").out)
        finally:
            here.end()
        lives.append(texts)

    assert lives[0][:3] == lives[1][:3]
    assert [DIGEST.sub(r"\1 …", text) for text in lives[0]] == [DIGEST.sub(r"\1 …", text) for text in lives[1]]
    assert [CLOCK.findall(text) for text in lives[0]] == [[]] * len(lives[0])


ESCAPE = "\x1b["


def test_colour_is_for_terminals(standing: Shell) -> None:
    """E.3: a pipe is plain, `NO_COLOR` and `TERM=dumb` make a terminal plain, `--color always` colours a pipe; the
    text is the same."""
    plain = standing("plan", "--destroy").out
    forced = standing("--color", "always", "plan", "--destroy").out

    def on_terminal(**env: str) -> str:
        shell = Shell(standing.path, **env)
        typed = shell.terminal("monarch-infra", "plan", "--destroy")
        typed.end()
        return typed.seen

    assert ESCAPE not in plain
    assert ESCAPE in forced
    assert re.sub(r"\x1b\[[0-9;]*m", "", forced) == plain
    assert ESCAPE in on_terminal()
    assert ESCAPE not in on_terminal(NO_COLOR="1")
    assert ESCAPE not in on_terminal(TERM="dumb")
    assert standing("plan", "--destroy", env={"CLICOLOR_FORCE": "1"}).out == forced
    assert standing("plan", "--destroy", env={"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}).out == plain


def test_talk_goes_to_stderr(shell: Shell) -> None:
    """E.3: stdout is what was asked for; progress, questions and the next command are not in it."""
    shell.write("version: 1\nhosts: 1\n")

    planned = shell("plan")
    applied = shell("apply", "--yes")

    assert planned.err == "next: monarch-infra apply\n"
    assert "next:" not in planned.out + applied.out
    assert "workers  1 of 1 answer" in applied.err
    assert "answer" not in applied.out
    assert ESCAPE not in applied.err


@pytest.mark.parametrize(
    "line", ["monarch-infra schema | head -1", "monarch-infra plan | true", "monarch-infra plan nosuch --json | true"]
)
def test_a_reader_that_leaves_is_no_error(standing: Shell, line: str) -> None:
    """`| head -1` ends without a word: what SIGPIPE does to any command."""
    done = standing.bash(f"{line}; echo ${{PIPESTATUS[0]}}")

    assert done.out.splitlines()[-1] in ("0", "141")
    assert [text for text in done.err.splitlines() if not text.startswith("next: ")] == []


# --- where it is typed -------------------------------------------------------------------------------


def test_a_job_file_elsewhere(shell: Shell) -> None:
    """A path leads to the job beside it, from anywhere, and each command printed as next runs as it is printed."""
    shell.write("version: 1\nhosts: 1\n", "lab café/my jobs/job.yaml")
    home = shell.path / "lab café" / "my jobs"

    planned = shell("plan", "lab café/my jobs/job.yaml")
    command = planned.err.strip().removeprefix("next: ")
    assert command.startswith("monarch-infra apply ")
    shell.bash(f"{command} --yes")
    hello = shell.python(
        "job = InfraJob(sys.argv[1]); tell(count(job.state().workers.spawn_procs().spawn('c', Counter)))",
        "lab café/my jobs/job.yaml",
    )
    again = shell("apply", cwd=home)

    assert hello == [[1, pid] for pid in shell.hosts().values()]
    assert "nothing to do: 1 mesh matches, 1 host\n" in again.out
    assert not (shell.path / ".monarch-infra").exists()


def test_the_command_after_init_runs_as_printed(shell: Shell) -> None:
    """U1 in a directory with a space: what `init` prints as next can be pasted."""
    told = shell("init", "my first job").err

    (command,) = re.findall(r"^next: (.*)$", told, flags=re.MULTILINE)
    done = shell.bash(command.partition(" && python")[0].replace("monarch-infra apply", "monarch-infra plan"))
    assert done.out.startswith("my-first-job on local")


@pytest.mark.parametrize("home", [None, "/proc"], ids=["unset", "not writable"])
def test_no_home_directory_is_needed(shell: Shell, home: str | None) -> None:
    """A container often has no HOME, or one that cannot be written; a life of a job needs none."""
    shell.write("version: 1\nhosts: 1\n")
    shell.env["MONARCH_INFRA_CACHE"] = engine_cache(shell)
    shell.env.pop("HOME", None)
    if home is not None:
        shell.env["HOME"] = home

    shell("apply", "--yes")
    pinged = shell("ping", "--json").json["hosts"]
    shell("destroy", "--yes")

    assert len(pinged) == 1


def engine_cache(shell: Shell) -> str:
    """Return where the engine lies, so that it is found without a HOME."""
    path = Path(shell("version", "--json").json["engine"]["path"])
    assert path.parts[-3] == "engine"
    return str(path.parents[2])


def test_help_needs_no_engine_and_no_job(tmp_path: Path) -> None:
    """`--help` of every command is printed in any directory, and each names what it takes."""
    shell = Shell(tmp_path, MONARCH_INFRA_CACHE=str(tmp_path / "none"))
    names = re.findall(r"^  (\w+) ", shell("--help").out.partition("Commands:\n")[2], flags=re.MULTILINE)

    assert {"init", "validate", "plan", "apply", "destroy", "status", "output", "ping"} <= set(names)
    assert BIN.joinpath("monarch-infra").exists()
    for name in names:
        assert shell(name, "--help").out.startswith(f"Usage: monarch-infra {name}")
