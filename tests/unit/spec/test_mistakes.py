"""What is wrong with a job file, where, and in which words."""

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from monarch_infra.problem import Problem, Report, SpecError
from monarch_infra.spec import Loaded

Place = tuple[int, int, str]
Refused = Callable[..., list[Place]]
Load = Callable[..., Loaded]
Check = Callable[..., Report]


def marked(text: str) -> tuple[str, tuple[int, int]]:
    """Return *text* without its mark `^`, and the line and column where the mark was."""
    text = inspect.cleandoc(text)
    before = text[: text.index("^")]
    return text.replace("^", "", 1) + "\n", (before.count("\n") + 1, len(before) - before.rfind("\n"))


ONE_MISTAKE = [
    ("^hosts: 2", "version missing", "version: 1"),
    ("^version:\nhosts: 2", "version missing", "version: 1"),
    ('version: ^"1"\nhosts: 2', "wrong type", "remove the quotes"),
    ("version: ^0\nhosts: 2", "value not allowed", ""),
    ("version: ^7\nhosts: 2\nnew: setting", "job file too new", "upgrade"),
    ("^version: 1", "setting missing", "hosts: 2"),
    ("version: 1\n^meshes: {}", "setting missing", "hosts: 2"),
    ("version: 1\nmeshes: ^[a, b]", "wrong type", ""),
    ("version: 1\n^host: 2\nmeshes: {a: 1}", "setting not known", "did you mean `hosts`?"),
    ("version: 1\nhosts: 2\n^env: {A: b}", "setting not known", "under `meshes.<name>` or under `runtime`"),
    ("version: 1\nhosts: 2\n^provider: cloud", "setting not known", "under `targets.<name>`"),
    ("version: 1\nhosts: 2\n^cloud: {region: a}", "setting not known", "under a target or under a mesh"),
    ("version: 1\nhosts: 2\n^zzzzzz: 1", "setting not known", ""),
    ("version: 1\n^hosts: 2\nmeshes: {a: 1}", "settings exclude each other", "`workers"),
    ("version: 1\nhosts: ^0", "value out of range", ""),
    ("version: 1\nhosts: ^4097", "value out of range", ""),
    ('version: 1\nhosts: ^"2"', "wrong type", "remove the quotes: `hosts: 2`"),
    ("version: 1\nhosts: ^two", "wrong type", ""),
    ("version: 1\nhosts: ^2.5", "wrong type", ""),
    ("version: 1\nhosts: ^true", "wrong type", ""),
    ("version: 1\nhosts: ^[2]", "wrong type", ""),
    ("version: 1\nmeshes: {a: ^four}", "wrong type", ""),
    ("version: 1\nmeshes:\n  ^a:", "setting missing", "add `hosts: 2`"),
    ("version: 1\nmeshes:\n  ^a: {env: {A: b}}", "setting missing", "add `hosts: 2`"),
    ("version: 1\nmeshes:\n  a: {^hoss: 2}", "setting not known", "did you mean `hosts`?"),
    ("version: 1\nmeshes:\n  a: {hosts: 1, ^gpus: 2}", "setting not known", "under `meshes.<name>.resources`"),
    ("version: 1\nmeshes:\n  a: {hosts: 1, ^clout: {}}", "setting not known", "did you mean `cloud`?"),
    ("version: 1\nmeshes:\n  ^Trainers: 4", "mesh name not allowed", "rename it to `trainers`"),
    ("version: 1\nmeshes:\n  ^my-mesh: 4", "mesh name not allowed", "rename it to `mymesh`"),
    ("version: 1\nmeshes:\n  ^9lives: 4", "mesh name not allowed", "rename it to `lives`"),
    ("version: 1\nmeshes:\n  ^query_engine: 4", "mesh name not allowed", "rename it to `queryengine`"),
    ("version: 1\nmeshes:\n  ^größe: 4", "mesh name not allowed", "rename it to `gre`"),
    (f"version: 1\nmeshes:\n  ^{'a' * 64}: 4", "mesh name not allowed", f"rename it to `{'a' * 63}`"),
    ("version: 1\nname: ^Llama RL\nhosts: 2", "job name not allowed", "rename it to `llama-rl`"),
    ("version: 1\nname: ^3.10\nhosts: 2", "wrong type", "choose a name"),
    ("version: 1\nhosts: 2\nruntime: {env: {NCCL: ^1}}", "wrong type", 'put it in quotes: `NCCL: "1"`'),
    ("version: 1\nhosts: 2\nruntime: {env: {V: ^3.10}}", "wrong type", 'put it in quotes: `V: "3.10"`'),
    ("version: 1\nhosts: 2\nruntime: {env: {V: ^true}}", "wrong type", 'put it in quotes: `V: "true"`'),
    ("version: 1\nhosts: 2\nruntime:\n  env:\n    ^FOO:\n", "wrong type", 'write `FOO: ""`'),
    ("version: 1\nhosts: 2\nruntime: {env: {^A-B: c}}", "environment name not allowed", "rename it to `A_B`"),
    ('version: 1\nhosts: 2\nruntime: {env: {A: ^"a\\0b"}}', "value not allowed", ""),
    ("version: 1\nhosts: 2\nlabels: {^monarch-infra/job: x}", "label name not allowed", ""),
    ("version: 1\nhosts: 2\nlabels: {a: ^2024}", "wrong type", 'put it in quotes: `a: "2024"`'),
    ("version: 1\nhosts: 2\ntimeouts: {ready: ^15}", "wrong type", "write `15m` for minutes or `15s` for seconds"),
    ('version: 1\nhosts: 2\ntimeouts: {ready: ^"15"}', "value not allowed", "`15m` for minutes or `15s`"),
    ("version: 1\nhosts: 2\ntimeouts: {ready: ^01:30:00}", "value not allowed", "`1h30m`"),
    ("version: 1\nhosts: 2\ntimeouts: {ready: ^0s}", "value not allowed", ""),
    ("version: 1\nhosts: 2\ntimeouts: {ready: ^99d}", "value not allowed", ""),
    ("version: 1\nhosts: 2\ntimeouts: {^redy: 1h}", "setting not known", "did you mean `ready`?"),
    ("version: 1\nhosts: 2\ntargets: {^Prod: {provider: local}}", "target name not allowed", "rename it to `prod`"),
    ("version: 1\nhosts: 2\ntargets: {^a-b: {provider: local}}", "target name not allowed", "rename it to `ab`"),
    ("version: 1\nhosts: 2\ntargets: ^[a]", "wrong type", ""),
    ("version: 1\nhosts: 2\ntargets: {local: ^cloud}", "wrong type", ""),
    ("version: 1\nhosts: 2\ntargets: {local: {provider: ^cloud}}", "value not allowed", "another name"),
]


@pytest.mark.parametrize(("text", "summary", "hint"), ONE_MISTAKE)
def test_one_mistake_is_one_problem_at_its_place(read: Load, text: str, summary: str, hint: str) -> None:
    """The caret stands under the name or the value that is wrong, and nothing is told twice."""
    text, place = marked(text)

    with pytest.raises(SpecError) as caught:
        read(text)

    assert [p.summary for p in caught.value.problems] == [summary]
    problem = caught.value.problems[0]
    assert problem.where is not None
    assert (problem.where.line, problem.where.column) == place
    assert problem.where.text == text.splitlines()[place[0] - 1]
    assert hint in problem.hint or (hint == "upgrade" and "upgrade" in problem.hint)
    assert problem.detail.endswith(".")


RESOURCES = [
    ("accelerators: ^8:8", 'such as "H100:8"'),
    ("accelerators: ^H100", '"H100:1"'),
    ("accelerators: ^8:H100", '"H100:8"'),
    ("accelerators: ^8", '"H100:8"'),
    ("accelerators: ^H100:0", '"H100:8"'),
    ("gpus: ^0", ""),
    ("gpus: ^129", ""),
    ("cpus: ^500m", ""),
    ("memory: ^64", "`64Gi` for powers of 1024 or `64G`"),
    ("memory: ^64GB", "`64Gi` for powers of 1024 or `64G`"),
    ("memory: ^64gi", "`64Gi` for powers of 1024 or `64G`"),
    ("memory: ^512K", "`512Ki` for powers of 1024 or `512k`"),
    ("memory: ^0Gi", ""),
    ("disk: ^lots", "`64Gi`"),
    ("instance_type: ^m7i large", ""),
    ("fabric: ^on", ""),
    ("fabric: ^requird", "did you mean `required`?"),
    ("accelerators: H100:8, ^gpus: 4", "remove `gpus`"),
]


@pytest.mark.parametrize(("setting", "hint"), RESOURCES)
def test_resources_say_which_form_they_take(read: Load, setting: str, hint: str) -> None:
    """A quantity, a count or a type that does not read as one names the spelling that would."""
    text, place = marked(f"version: 1\nmeshes: {{a: {{hosts: 1, resources: {{{setting}}}}}}}")

    with pytest.raises(SpecError) as caught:
        read(text)

    (problem,) = caught.value.problems
    assert problem.where is not None
    assert (problem.where.line, problem.where.column) == place
    assert hint in problem.hint


TEN = """\
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
targets:
  prod: {provider: clowd}
"""


def test_ten_mistakes_are_told_in_one_go(validate: Check) -> None:
    """The ten commonest mistakes in one file give one block each, in the order of the file."""
    found = [(p.where.line, p.where.column, p.summary) for p in validate(TEN).problems if p.where]

    assert found == [
        (1, 10, "wrong type"),
        (2, 7, "job name not allowed"),
        (4, 3, "mesh name not allowed"),
        (6, 12, "value out of range"),
        (7, 17, "setting not known"),
        (7, 48, "wrong type"),
        (8, 18, "wrong type"),
        (9, 17, "value not allowed"),
        (10, 5, "key given twice"),
        (11, 19, "wrong type"),
        (13, 20, "provider not found"),
    ]


def test_no_message_speaks_pydantic(validate: Check) -> None:
    """Messages are ours: sentences with an end, no type names, and no text of the file in a summary."""
    texts = [marked(text)[0] for text, _, _ in ONE_MISTAKE]
    problems: list[Problem] = [problem for text in texts for problem in validate(text).problems]

    for problem in problems:
        assert not {"Input should", "pydantic", "str type", "extra_forbidden"} & set(problem.detail.split())
        assert "Input" not in problem.detail
        assert problem.summary == problem.summary.strip(". `")


def test_the_example_of_the_typo_reads_as_promised(validate: Check) -> None:
    """The most shown message keeps its words."""
    report = validate('version: 1\nmeshes:\n  a: {hosts: 1, resources: {acelerators: "H100:8"}}\n')

    (problem,) = report.problems
    assert problem.summary == "setting not known"
    assert problem.detail == "A mesh's resources have no setting `acelerators`."
    assert problem.hint == "did you mean `accelerators`?"


PLANNED = """\
version: 1
meshes:
  a:
    hosts: {min: 1, want: 4, max: 8}
    capacity: [spot]
    health: [gpu]
    on_loss: report
  b: {hosts: 1, on_loss: fail, provider: local}
runtime:
  python: 3.10
  secrets: {HF_TOKEN: {from: env}}
lifetime: {ttl: 12h, nonsense: 1}
protect: false
timeouts: {boot: 5, ready: 10m}
tasks:
"""


def test_what_is_planned_is_refused_by_name(validate: Check) -> None:
    """A planned setting is `not built yet` at its place, without a word on what stands inside it; null is nothing."""
    found = [(p.where.line, p.where.column, p.summary) for p in validate(PLANNED).problems if p.where]

    assert found == [
        (line, column, "not built yet")
        for line, column in [(4, 12), (5, 5), (6, 5), (7, 14), (8, 26), (10, 3), (11, 3), (12, 1), (13, 1), (14, 12)]
    ]


def test_notes_are_ignored_wherever_settings_stand(read: Load) -> None:
    """`x-…` is a place for anchors and for other tools."""
    text = "version: 1\nx-a: &gpu {cpus: 4}\nmeshes: {a: {hosts: 1, x-note: [], resources: {<<: *gpu, x-y: 1}}}\n"

    assert read(text + "targets: {x-base: 1, prod: {provider: local, x-z: 1}}\n").spec.meshes[0].resources.cpus == 4


def test_too_many_meshes_are_a_mistake(refused: Refused) -> None:
    """More meshes than the engine should plan are told once, however many they are."""
    text = "version: 1\nmeshes:\n" + "".join(f"  m{i}: 1\n" for i in range(1001))

    assert refused(text) == [(2, 1, "value out of range")]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("llama/job.yaml", "llama"),
        ("llama/eval.yaml", "llama-eval"),
        ("My_Project (2)/job.yaml", "my-project-2"),
        ("42 runs/job.yaml", "runs"),
        (f"{'long' * 20}/job.yaml", "long" * 10),
    ],
)
def test_a_job_without_a_name_is_called_after_its_directory(read: Load, file: str, name: str) -> None:
    """The directory's name, made to fit, with the file's stem unless it is `job.yaml`."""
    assert read("version: 1\nhosts: 1\n", name=file).spec.name == name


def test_a_directory_that_makes_no_name_asks_for_one(read: Load) -> None:
    """Where nothing of the directory's name may stand in a job's name, the file must give one."""
    with pytest.raises(SpecError) as caught:
        read("version: 1\nhosts: 1\n", name="2024/eval.yaml")

    assert [p.summary for p in caught.value.problems] == ["job name missing"]


def test_places_name_the_file_as_it_was_given(read: Load, tmp_path: Path) -> None:
    """A problem's file is the path the user typed."""
    with pytest.raises(SpecError) as caught:
        read("hosts: 1\n")

    where = caught.value.problems[0].where
    assert where is not None
    assert where.file == str(tmp_path / "llama/job.yaml")
