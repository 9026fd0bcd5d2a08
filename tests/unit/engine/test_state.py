"""What a state is called, and what is read of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from monarch_infra.engine import State, Workspace, read
from monarch_infra.engine.state import SEALED, Resource
from monarch_infra.problem import EngineError


def urn(kind: str, name: str) -> str:
    return f"urn:pulumi:llama-test::monarch-infra::monarch:test:{kind}::{name}"


def resource(kind: str, name: str, inputs: Any = None, outputs: Any = None) -> Resource:
    return Resource(urn(kind, name), kind, name, name, inputs or {}, outputs or {})


def sealed(text: str) -> dict[str, str]:
    return {SEALED: "1b47061264138c4ac30d75fd1eb44270", "ciphertext": text}


def group(name: str, *ranks: int) -> Resource:
    hosts = [{"rank": rank, "generation": 1, "provider_id": "x"} for rank in ranks]
    inputs = {"hosts": len(ranks), "python": "3.11", "monarch": "0.7.0"}
    return resource("HostGroup", name, inputs, {"members": json.dumps(hosts)})


# --- the digest -------------------------------------------------------------------------------------


def test_sealing_anew_is_no_change() -> None:
    """The engine seals a secret differently at every write, also deep inside."""
    states = [
        State((resource("Deployment", "d", {}, {"key": sealed(text), "deep": [{"key": sealed(text)}]}),))
        for text in ("v1:abc", "v1:xyz")
    ]

    assert states[0].digest == states[1].digest


def test_the_order_of_keys_is_no_change() -> None:
    """A map is written as it comes."""
    first = State((resource("Site", "s", {"a": 1, "b": {"c": 1, "d": 2}}),))
    second = State((resource("Site", "s", {"b": {"d": 2, "c": 1}, "a": 1}),))

    assert first.digest == second.digest


@pytest.mark.parametrize(
    "other",
    [
        pytest.param((group("a", 0),), id="a host less"),
        pytest.param((group("b", 0, 1),), id="another name"),
        pytest.param((group("a", 0, 1), group("b", 0)), id="a mesh more"),
        pytest.param((), id="nothing"),
    ],
)
def test_another_state_has_another_name(other: tuple[Resource, ...]) -> None:
    """What stands is told apart."""
    assert State(other).digest != State((group("a", 0, 1),)).digest


def test_the_order_of_resources_is_no_change() -> None:
    """The engine writes them as their steps end, which differs from run to run."""
    assert State((group("a", 0), group("b", 0))).digest == State((group("b", 0), group("a", 0))).digest


# --- what is read -----------------------------------------------------------------------------------


def test_the_outputs_are_the_hosts_that_the_groups_list() -> None:
    """With the versions that they were made for."""
    outputs = State((resource("Deployment", "d"), group("a", 0, 1), group("b"))).outputs

    assert outputs is not None
    assert {name: len(mesh.hosts) for name, mesh in outputs.meshes.items()} == {"a": 2, "b": 0}
    assert (outputs.deployment, outputs.python, outputs.monarch_version) == ("d", "3.11", "0.7.0")


def test_without_a_deployment_there_are_no_outputs() -> None:
    """What is left of a destroyed stack names nobody."""
    assert State(()).outputs is None
    assert State(()).is_empty
    assert State((group("a", 0),)).outputs is None


def test_only_resources_of_ours_are_read(tmp_path: Path) -> None:
    """The engine's own stand beside them; what is sealed or pending is told."""
    workspace = Workspace(tmp_path, "llama-test")
    ours = {"type": "monarch:test:Site", "urn": urn("Site", "site"), "id": "site", "inputs": {"a": 1}}
    theirs = {"type": "pulumi:pulumi:Stack", "urn": "urn:pulumi:llama-test::monarch-infra::pulumi:pulumi:Stack::x"}
    latest = {"resources": [theirs, ours], "pending_operations": [{}]}
    workspace.state_file.parent.mkdir(parents=True)
    workspace.state_file.write_text(json.dumps({"checkpoint": {"latest": latest}}))

    state = read(workspace)

    assert state.resources == (Resource(ours["urn"], "Site", "site", "site", {"a": 1}, {}),)  # type: ignore[arg-type]
    assert state.has_pending
    assert state.site == state.resources[0]


def test_no_file_is_an_empty_state(tmp_path: Path) -> None:
    """Reading a workspace makes none."""
    assert read(Workspace(tmp_path / "nowhere", "llama-test")).is_empty
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"checkpoint": null}'])
def test_a_file_that_is_no_state_is_an_error_that_says_so(tmp_path: Path, text: str) -> None:
    """It is never taken for an empty one: that would make everything a second time."""
    workspace = Workspace(tmp_path, "llama-test")
    workspace.state_file.parent.mkdir(parents=True)
    workspace.state_file.write_text(text)

    with pytest.raises(EngineError, match="cannot be read"):
        read(workspace)
