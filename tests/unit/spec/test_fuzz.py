"""No file, however broken, gets anything but an answer."""

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monarch_infra.problem import SpecError
from monarch_infra.provider import Provider
from monarch_infra.spec import check, load

GOOD = """\
version: 1
name: llama
labels: {team: nlp}
x-gpu: &gpu {accelerators: "H100:8", memory: 64Gi}
meshes:
  trainers:
    hosts: 4
    env: {A: "1"}
    resources: {<<: *gpu, fabric: required}
  loaders: 2
timeouts: {ready: 15m}
targets:
  local: {hosts: null}
  prod:
    provider: cloud
    cloud: {region: us, zones: [us-a], volume: {size: 3}}
    meshes: {trainers: {cloud: {spot: true}}, loaders: null}
"""
"""A job file with nothing wrong."""
PIECES = [*GOOD.split(), "\n", "\n  ", "{", "}", "[", "]", ": ", "- ", "? ", "*gpu", "&a ", "!!x ", "null", "-1", "3.1"]
PIECES += ['"', "'", "|\n", "<<: ", "targets:\n  a: ", "hosts", "meshes", "capacity: 1", "\t", "%", "---\n", "é", "\0"]

FUZZ = settings(
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def answer(file: Path, content: bytes, catalogue: Mapping[str, Provider]) -> None:
    file.write_bytes(content)
    report = check(file, catalogue=catalogue)
    assert all(problem.where is not None and problem.summary for problem in report.problems)
    with contextlib.ExitStack() as stack:
        if report.errors:
            stack.enter_context(contextlib.suppress(SpecError))
        assert load(file, python="3.11", monarch="0.7.0", catalogue=catalogue).spec.meshes


@FUZZ
@given(content=st.binary(max_size=200))
def test_random_bytes_are_a_problem_not_a_crash(
    tmp_path: Path, catalogue: Mapping[str, Provider], content: bytes
) -> None:
    """Whatever the bytes, the answer is a SpecError."""
    answer(tmp_path / "job.yaml", content, catalogue)


@FUZZ
@given(at=st.integers(0, len(GOOD)), length=st.integers(0, 30), piece=st.sampled_from(PIECES))
def test_a_job_file_with_a_piece_exchanged_is_answered(
    tmp_path: Path, catalogue: Mapping[str, Provider], at: int, length: int, piece: str
) -> None:
    """A right file that a slip of the hand changed loads, or says what is wrong at a place."""
    text = GOOD[:at] + piece + GOOD[at + length :]

    answer(tmp_path / "job.yaml", text.encode(), catalogue)


@FUZZ
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=12))
def test_pieces_of_a_job_file_in_any_order_are_answered(
    tmp_path: Path, catalogue: Mapping[str, Provider], pieces: list[str]
) -> None:
    """Known words in the wrong order are answered as well."""
    answer(tmp_path / "job.yaml", ("version: 1\nhosts: 1\n" + " ".join(pieces)).encode(), catalogue)


VALUES = st.recursive(
    st.sampled_from(["1", "0", "-1", "1.5", "true", "null", "text", '"2"', "64Gi", "15m", "H100:8", "local", "cloud"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(
            st.sampled_from(
                [
                    "version",
                    "name",
                    "labels",
                    "hosts",
                    "meshes",
                    "runtime",
                    "env",
                    "timeouts",
                    "ready",
                    "targets",
                    "provider",
                    "resources",
                    "memory",
                    "gpus",
                    "accelerators",
                    "cloud",
                    "local",
                    "slurm",
                    "region",
                    "zones",
                    "volume",
                    "on_loss",
                    "on_partial",
                    "capacity",
                    "a",
                    "b",
                    "x-y",
                    "prod",
                ]
            ),
            inner,
            max_size=4,
        ).map(lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items.items()) + "}"),
    ),
    max_leaves=10,
)


@FUZZ
@given(
    values=st.dictionaries(
        st.sampled_from(["labels", "hosts", "meshes", "runtime", "timeouts", "targets", "admin"]), VALUES, max_size=4
    )
)
def test_any_value_under_any_setting_is_answered(
    tmp_path: Path, catalogue: Mapping[str, Provider], values: dict[str, str]
) -> None:
    """What the checks let through, the records take too: nothing fails between them."""
    text = "version: 1\n" + "".join(f"{key}: {value}\n" for key, value in values.items())

    answer(tmp_path / "job.yaml", text.encode(), catalogue)


def test_a_thousand_meshes_are_read_in_two_seconds(tmp_path: Path, catalogue: Mapping[str, Provider]) -> None:
    """The largest job file costs less than the plan that follows."""
    file = tmp_path / "job.yaml"
    mesh = '    hosts: 4\n    env: {A: b}\n    resources: {accelerators: "H100:8", cpus: 16, memory: 64Gi}\n'
    file.write_text("version: 1\nmeshes:\n" + "".join(f"  m{i}:\n{mesh}" for i in range(1000)))

    begun = time.process_time()
    loaded = load(file, python="3.11", monarch="0.7.0", catalogue=catalogue)

    assert len(loaded.spec.meshes) == 1000
    assert time.process_time() - begun < 2


@pytest.mark.parametrize("text", ["targets: {local: {}}", "targets: {local: null}", "targets:"])
def test_the_target_that_always_exists_may_be_written_down(
    tmp_path: Path, catalogue: Mapping[str, Provider], text: str
) -> None:
    """To name it and say nothing of it is no mistake."""
    file = tmp_path / "job.yaml"
    file.write_text(f"version: 1\nname: a\nhosts: 1\n{text}\n")

    assert load(file, python="3.11", monarch="0.7.0", catalogue=catalogue).spec.target == "local"
