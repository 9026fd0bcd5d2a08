"""The nouns: ranges of ranks, digests, what a host is made from, and that records survive a file."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from monarch_infra.model import (
    JobSpec,
    MeshSpec,
    Outputs,
    Resources,
    digest,
    outputs_of,
    outputs_text,
    ranges,
    unranges,
)

FUZZ = settings(max_examples=60, deadline=None)  # a deadline would fail on a busy machine

MESH = MeshSpec(name="trainers", hosts=2, env={"A": "1"}, python="3.11", monarch="0.7.0")


@FUZZ
@given(st.sets(st.integers(0, 5000), max_size=60))
def test_ranges_and_their_inverse(ranks: set[int]) -> None:
    """What is written as ranges reads as the same ranks, in order."""
    assert unranges(ranges(ranks)) == tuple(sorted(ranks))


@FUZZ
@given(st.lists(st.integers(0, 50)))
def test_ranges_are_the_shortest(ranks: list[int]) -> None:
    """Neighbours share a range, whatever order they come in and however often."""
    ends = [part.split("-") for part in filter(None, ranges(ranks).split(","))]

    assert all(int(after[0]) > int(before[-1]) + 1 for before, after in pairwise(ends))
    assert all(len(end) == 1 or int(end[0]) < int(end[1]) for end in ends)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([], ""), ([3], "3"), ([0, 1], "0-1"), ([0, 1, 2, 3, 7], "0-3,7"), ([9, 7, 8, 8], "7-9"), (range(1024), "0-1023")],
)
def test_ranges_as_a_person_reads_them(ranks: Any, text: str) -> None:
    """As `0-3,7`."""
    assert ranges(ranks) == text


# --- what a host is made from -----------------------------------------------------------------------


@pytest.mark.parametrize("change", [{"hosts": 7}, {"on_partial": "keep"}])
def test_size_and_policies_do_not_make_a_host(change: dict[str, Any]) -> None:
    """A host that an interrupted apply left is still good for a larger or more patient mesh."""
    assert MESH.model_copy(update=change).made_from == MESH.made_from


@pytest.mark.parametrize(
    "change",
    [
        {"name": "loaders"},
        {"env": {"A": "2"}},
        {"env": {}},
        {"labels": {"team": "blue"}},
        {"resources": Resources(gpus=8)},
        {"python": "3.12"},
        {"monarch": "0.7.1"},
        {"options": {"zone": "b"}},
    ],
)
def test_everything_else_does(change: dict[str, Any]) -> None:
    """A host made from another setting is not what is asked for."""
    assert MESH.model_copy(update=change).made_from != MESH.made_from


def test_no_setting_is_forgotten_by_the_two_tests_above() -> None:
    """A new setting of a mesh has to be put on one side or the other."""
    policies = {"hosts", "on_partial", "on_loss"}
    makes = {"name", "env", "labels", "resources", "python", "monarch", "options"}

    assert set(MeshSpec.model_fields) == policies | makes


def test_the_order_of_keys_does_not_make_a_host() -> None:
    """Neither the file's nor the state's."""
    first = MESH.model_copy(update={"env": {"A": "1", "B": "2"}})
    second = MESH.model_copy(update={"env": {"B": "2", "A": "1"}})

    assert first.made_from == second.made_from


# --- records ----------------------------------------------------------------------------------------


def test_a_setting_that_is_added_with_a_default_changes_no_digest() -> None:
    """What holds its default is no part of inputs or digests, so a later release plans nothing over today's state."""
    assert MESH.inputs == {"hosts": 2, "env": {"A": "1"}, "python": "3.11", "monarch": "0.7.0"}
    assert MESH.model_copy(update={"on_partial": "remove", "labels": {}}).inputs == MESH.inputs


def test_a_mesh_is_read_back_from_its_inputs() -> None:
    """The resource's name and inputs are the whole mesh."""
    full = MESH.model_copy(update={"resources": Resources(gpus=8, fabric="required"), "options": {"a": {"b": [1]}}})

    assert MeshSpec.model_validate({**json.loads(json.dumps(full.inputs)), "name": full.name}) == full


def test_records_cannot_be_changed_and_know_their_fields() -> None:
    """A plan that was approved is the plan that is carried out."""
    with pytest.raises(ValidationError, match="frozen"):
        MESH.hosts = 3  # type: ignore[misc]
    with pytest.raises(ValidationError, match="extra"):
        MeshSpec.model_validate({"name": "a", "hosts": 1, "host": 2})


@pytest.mark.parametrize("name", ["Trainers", "a-b", "1a", "", "a" * 64, "ä"])
def test_a_mesh_name_is_an_attribute_and_a_label(name: str) -> None:
    """Monarch makes it an attribute of `JobState`, a cloud a DNS label."""
    with pytest.raises(ValidationError):
        MeshSpec(name=name, hosts=1)


@pytest.mark.parametrize(
    ("first", "second", "is_same"), [({"a": 1, "b": 2}, {"b": 2, "a": 1}, True), ([1, 2], [2, 1], False)]
)
def test_a_digest_knows_no_order_of_keys(first: Any, second: Any, is_same: bool) -> None:
    """Lists have an order, maps have none."""
    assert (digest(first) == digest(second)) is is_same


def test_a_job_has_its_stack_and_its_meshes_by_name() -> None:
    """`<job>-<target>`."""
    job = JobSpec(name="llama", target="aws", provider="memory", meshes=(MESH,))

    assert job.stack == "llama-aws"
    assert job.mesh("trainers") == MESH
    assert job.mesh("loaders") is None


# --- outputs ----------------------------------------------------------------------------------------

HOST = {"rank": 0, "generation": 1, "provider_id": "x", "worker": {"address": "tcp://h:1", "proc_id": "p"}}


def test_the_text_that_a_stack_exports_is_its_outputs() -> None:
    """What plain `pulumi stack output` gives a client is what our own reader of the state gives."""
    job = JobSpec(name="llama", target="aws", provider="memory", meshes=(MESH,))

    exported = Outputs.model_validate_json(outputs_text(job, "d" * 32, {"trainers": json.dumps([HOST])}))

    assert exported == outputs_of("d" * 32, {"trainers": MESH.inputs}, {"trainers": [HOST]})
    assert (exported.python, exported.monarch_version) == ("3.11", "0.7.0")


def test_a_mesh_that_was_not_made_yet_exports_no_hosts() -> None:
    """In a preview nothing is known of it."""
    job = JobSpec(name="llama", target="aws", provider="memory", meshes=(MESH,))

    assert Outputs.model_validate_json(outputs_text(job, "d", {"trainers": ""})).meshes["trainers"].hosts == ()
