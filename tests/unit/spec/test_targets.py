"""Targets, their overlays and their providers' own settings."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from monarch_infra.problem import NotFoundError, Report, SpecError
from monarch_infra.provider import Provider
from monarch_infra.spec import Loaded, load

Refused = Callable[..., list[tuple[int, int, str]]]
Load = Callable[..., Loaded]
Check = Callable[..., Report]
Write = Callable[..., Path]

JOB = """\
version: 1
name: llama
labels: {team: nlp}
runtime: {env: {A: "1", B: "1"}}
meshes:
  trainers: 4
  loaders:
    hosts: 2
    env: {B: "2"}
    labels: {role: io}
    resources: {cpus: 16, accelerators: "h100:8"}
targets:
  prod:
    provider: cloud
    cloud: {region: us, zones: [us-a]}
    timeouts: {ready: 1h30m}
    runtime: {env: {A: null, C: "3"}}
    meshes:
      trainers: {env: {D: "4"}, cloud: {spot: true}}
      loaders: 3
      extra: 1
"""


def test_the_smallest_job_file_is_one_mesh_of_workers(read: Load) -> None:
    """`version` and `hosts` are enough; everything else has a default."""
    spec = read("version: 1\nhosts: 2\n").spec

    assert [(mesh.name, mesh.hosts) for mesh in spec.meshes] == [("workers", 2)]
    assert (spec.name, spec.target, spec.provider, spec.ready_timeout_s) == ("llama", "local", "local", 900.0)
    assert (spec.meshes[0].python, spec.meshes[0].monarch) == ("3.11", "0.7.0")


def test_a_mesh_may_be_a_number(read: Load) -> None:
    """Meshes are sorted by name, a number is short for its hosts."""
    spec = read("version: 1\nmeshes: {trainers: 4, loaders: 2}\n").spec

    assert [(mesh.name, mesh.hosts) for mesh in spec.meshes] == [("loaders", 2), ("trainers", 4)]


def test_the_mesh_wins_over_the_job(read: Load) -> None:
    """Environment and labels of a mesh are laid over the job's."""
    loaders = read(JOB).spec.mesh("loaders")

    assert loaders is not None
    assert loaders.env == {"A": "1", "B": "2"}
    assert loaders.labels == {"team": "nlp", "role": "io"}


def test_accelerators_are_the_same_in_upper_and_lower_case(read: Load) -> None:
    """Rewriting `h100` as `H100` is no change."""
    loaders = read(JOB).spec.mesh("loaders")

    assert loaders is not None
    assert loaders.resources.accelerators == "H100:8"


def test_a_target_is_laid_over_the_rest(read: Load) -> None:
    """Maps merge, single values replace, null removes; a mesh that is a number merges as its hosts."""
    spec = read(JOB, "prod").spec

    assert {mesh.name: mesh.hosts for mesh in spec.meshes} == {"extra": 1, "loaders": 3, "trainers": 4}
    trainers, loaders = spec.mesh("trainers"), spec.mesh("loaders")
    assert trainers is not None
    assert loaders is not None
    assert trainers.env == {"B": "1", "C": "3", "D": "4"}
    assert loaders.resources.cpus == 16
    assert spec.ready_timeout_s == 5400.0
    assert spec.stack == "llama-prod"


def test_a_target_may_take_a_mesh_away(read: Load) -> None:
    """Null removes a mesh, and with it what a mesh must have."""
    text = "version: 1\nmeshes: {a: 1, b: {hosts: 2}}\ntargets: {small: {provider: local, meshes: {b: null}}}\n"

    assert [mesh.name for mesh in read(text, "small").spec.meshes] == ["a"]


def test_hosts_for_short_may_be_said_differently_on_a_target(read: Load) -> None:
    """The short form merges as the mesh it stands for."""
    text = "version: 1\nhosts: 2\ntargets: {big: {provider: local, hosts: 8}}\n"

    assert [(mesh.name, mesh.hosts) for mesh in read(text, "big").spec.meshes] == [("workers", 8)]


def test_hosts_for_short_may_be_taken_away(read: Load) -> None:
    """Null in front of the short form removes the mesh that it stands for."""
    text = "version: 1\nhosts: 2\ntargets: {p: {provider: local, hosts: null, meshes: {a: 1}}}\n"

    assert [mesh.name for mesh in read(text, "p").spec.meshes] == ["a"]


def test_hosts_on_a_target_exclude_meshes_in_the_file(refused: Refused) -> None:
    """A target cannot add the mesh `workers` without naming it."""
    text = "version: 1\nmeshes: {a: 2}\ntargets: {big: {provider: local, hosts: 8}}\n"

    assert refused(text, "big") == [(3, 34, "settings exclude each other")]


def test_an_error_points_at_the_line_that_brought_it(refused: Refused) -> None:
    """What a target says is wrong in the target; what it leaves alone is wrong in the rest."""
    text = (
        "version: 1\nmeshes:\n  a: {hosts: 1, on_partial: drop}\n  b: {hosts: 0}\n"
        "targets:\n  prod:\n    provider: local\n    meshes:\n      b: {hosts: -1, emv: {}}\n"
    )

    assert refused(text, "prod") == [
        (3, 29, "value not allowed"),
        (9, 18, "value out of range"),
        (9, 22, "setting not known"),
    ]
    assert refused(text, "local") == [(3, 29, "value not allowed"), (4, 14, "value out of range")]


def test_a_misspelt_removal_is_seen(refused: Refused) -> None:
    """Null in front of a name that no setting has removes nothing, and says so."""
    text = "version: 1\nhosts: 1\ntargets: {prod: {provider: local, labls: null}}\n"

    assert refused(text, "prod") == [(3, 35, "setting not known")]


def test_a_target_needs_a_provider(refused: Refused) -> None:
    """Only the target that always exists has one by itself."""
    assert refused("version: 1\nhosts: 1\ntargets: {prod: {}}\n", "prod") == [(3, 11, "setting missing")]


@pytest.mark.parametrize(
    ("provider", "summary", "hint"),
    [
        ("clowd", "provider not found", "did you mean `cloud`?"),
        ("zzz", "provider not found", "install the package"),
        ("slurm", "not built yet", "for now there is"),
        ("broken", "provider cannot be loaded", ""),
    ],
)
def test_a_provider_that_is_not_there_is_told_by_its_kind(read: Load, provider: str, summary: str, hint: str) -> None:
    """Unknown, planned and not importable are three different things to do something about."""
    text = f"version: 1\nhosts: 1\ntargets:\n  prod: {{provider: {provider}}}\n"

    with pytest.raises(SpecError) as caught:
        read(text, "prod")

    (problem,) = caught.value.problems
    assert problem.summary == summary
    assert hint in problem.hint
    assert problem.where is not None
    assert (problem.where.line, problem.where.column) == (4, 20)


def test_what_a_target_may_not_say(refused: Refused) -> None:
    """Version, name and targets stand once, at the top."""
    text = "version: 1\nhosts: 1\ntargets: {prod: {provider: local, name: a, version: 1, targets: {}}}\n"

    assert refused(text, "prod") == [(3, column, "setting not known") for column in (35, 44, 56)]


def test_a_target_that_is_not_there_suggests_one_that_is(read: Load) -> None:
    """The exit code for names that do not exist, with the nearest that does."""
    with pytest.raises(NotFoundError) as caught:
        read(JOB, "prd")

    assert caught.value.code == 6
    assert caught.value.problems[0].hint == "did you mean `prod`?"


@pytest.mark.parametrize("mesh", ["trainers", "extra"])
def test_a_mesh_is_no_target(read: Load, mesh: str) -> None:
    """Who names a mesh as a target is told the flag for meshes."""
    with pytest.raises(NotFoundError) as caught:
        read(JOB, mesh)

    assert caught.value.problems[0].hint == f"use `--mesh {mesh}`"


def test_other_targets_warn_in_one_line(read: Load) -> None:
    """A problem of another target stops nothing here, and is one line, not a page."""
    text = "version: 1\nhosts: 1\ntargets:\n  a: {provider: slurm, hosts: 0}\n  b: {provider: local}\n"

    loaded = read(text)

    assert [warning.is_warning for warning in loaded.warnings] == [True]
    assert loaded.warnings[0].detail == "Target `a`: 2 problems (first: not built yet, line 4)."
    assert "monarch-infra validate" in loaded.warnings[0].hint


def test_all_targets_are_checked_at_once(validate: Check) -> None:
    """What is wrong for every target is told once; what is wrong for one is told too."""
    text = "version: 1\nhosts: 1\nadmin: true\ntargets:\n  a: {provider: slurm}\n  b: {provider: clowd}\n"

    found = [(p.where.line, p.summary) for p in validate(text).problems if p.where]

    assert found == [(3, "not built yet"), (5, "not built yet"), (6, "provider not found")]


def test_a_providers_own_settings_are_the_targets_with_the_meshs_over_them(read: Load) -> None:
    """Each mesh carries what its provider will read; defaults are left out."""
    spec = read(JOB, "prod").spec

    assert spec.options == {"region": "us", "zones": ["us-a"]}
    trainers, loaders = spec.mesh("trainers"), spec.mesh("loaders")
    assert trainers is not None
    assert loaders is not None
    assert trainers.options == {"region": "us", "zones": ["us-a"], "spot": True}
    assert loaders.options == spec.options


@pytest.mark.parametrize(
    ("block", "summary"),
    [
        ("cloud: {region: us, ^zonse: [a]}", "setting not known"),
        ("cloud: {region: us, zones: ^us-a}", "wrong type"),
        ("cloud: {region: us, zones: [^1]}", "wrong type"),
        ("^cloud: {region: us, zones: [eu-a]}", "value not allowed"),
        ("cloud: {region: us, volume: {size: ^11}}", "value out of range"),
        ("cloud: {region: us, volume: {size: 1, kind: ^sdd}}", "value not allowed"),
        ("cloud: {region: us, ^volume: {}}", "setting missing"),
        ("cloud: {region: us, spot: ^yes}", "wrong type"),
        ("cloud: {region: us, tags: {a: ^1}}", "wrong type"),
        ("^cloud: {zones: []}", "setting missing"),
        ("cloud: ^7", "wrong type"),
    ],
)
def test_a_providers_own_settings_are_checked_like_ours(validate: Check, block: str, summary: str) -> None:
    """Unknown, mistyped and missing settings of a provider have a place and our words."""
    column = len("    ") + block.index("^") + 1
    text = f"version: 1\nhosts: 1\ntargets:\n  p:\n    provider: cloud\n    {block.replace('^', '')}\n"

    found = [(p.where.line, p.where.column, p.summary) for p in validate(text).problems if p.where]

    assert found == [(6, column, summary)]


def test_other_providers_blocks_have_no_effect_but_a_form(refused: Refused, read: Load) -> None:
    """A block for another provider may be incomplete, not wrong."""
    good = "version: 1\nmeshes: {a: {hosts: 1, cloud: {spot: true}, slurm: {anything: 1}}}\n"

    assert read(good).spec.meshes[0].options == {}
    assert refused(good.replace("spot", "sopt")) == [(2, 32, "setting not known")]


def test_a_meshs_provider_is_its_targets(refused: Refused) -> None:
    """One provider per target today."""
    text = "version: 1\nmeshes: {a: {hosts: 1, provider: cloud}}\n"

    assert refused(text) == [(2, 34, "value not allowed")]


def test_what_a_provider_says_of_a_mesh_stands_at_the_mesh(read: Load) -> None:
    """A provider knows no lines; its problems get the mesh's, and its warnings do not stop."""
    text = "version: 1\nmeshes:\n  a: {hosts: 101, resources: {gpus: 1}}\n"
    text += "targets: {p: {provider: cloud, cloud: {region: us}}}\n"

    with pytest.raises(SpecError) as caught:
        read(text, "p")

    assert [(p.summary, p.where and p.where.line) for p in caught.value.problems] == [("too many hosts here", 3)]
    assert [p.summary for p in read(text).warnings] == ["no GPUs here", "another target cannot be used"]


def test_the_order_of_the_file_means_nothing(write: Write, catalogue: Mapping[str, Provider]) -> None:
    """Moving a block is no change."""
    a = write("version: 1\nmeshes: {a: 1, b: {hosts: 2, env: {A: x, B: y}}}\n", "j/a.yaml")
    b = write("meshes: {b: {env: {B: y, A: x}, hosts: 2}, a: {hosts: 1}}\nversion: 1\nname: j-a\n", "j/b.yaml")

    one, two = (load(file, python="3.11", monarch="0.7.0", catalogue=catalogue).spec for file in (a, b))

    assert one.digest == two.digest
