"""A stack's state, read without the engine.

It only reads: the engine alone writes state.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from monarch_infra.engine.workspace import Workspace
from monarch_infra.model import Json, Outputs, digest, outputs_of

OURS = "monarch:"
SEALED = "4dabf18193072939515e22adb298388d"
"""The key that marks a sealed value in the engine's state."""


@dataclass(frozen=True)
class Resource:
    """One resource of ours as the state holds it."""

    urn: str
    kind: str
    name: str
    id: str
    inputs: Json
    outputs: Json


@dataclass(frozen=True)
class State:
    """What the engine recorded of one stack."""

    resources: tuple[Resource, ...]
    has_pending: bool = False
    """An operation was cut off; what it made is found by its tag."""

    @cached_property
    def digest(self) -> str:
        """What the state is called: equal states have equal digests, whenever and wherever they were written."""
        ordered = sorted(self.resources, key=lambda r: r.urn)
        return digest([[r.urn, r.id, _unsealed(r.inputs), _unsealed(r.outputs)] for r in ordered])

    @property
    def is_empty(self) -> bool:
        return not self.resources

    @property
    def deployment(self) -> Resource | None:
        return self._first("Deployment")

    @property
    def site(self) -> Resource | None:
        return self._first("Site")

    @property
    def groups(self) -> dict[str, Resource]:
        return {r.name: r for r in self.resources if r.kind == "HostGroup"}

    @property
    def outputs(self) -> Outputs | None:
        """The hosts that serve; None where no deployment lives."""
        if self.deployment is None:
            return None
        groups = self.groups
        return outputs_of(
            self.deployment.id,
            {name: group.inputs for name, group in groups.items()},
            {name: members(group) for name, group in groups.items()},
        )

    def _first(self, kind: str) -> Resource | None:
        return next((r for r in self.resources if r.kind == kind), None)


def read(workspace: Workspace) -> State:
    """Return the stack's state; an empty one where there is none."""
    checkpoint = workspace.checkpoint()
    return State(
        resources=tuple(_resource(r) for r in checkpoint.get("resources") or [] if r["type"].startswith(OURS)),
        has_pending=bool(checkpoint.get("pending_operations")),
    )


def _resource(raw: dict[str, Any]) -> Resource:
    return Resource(
        urn=raw["urn"],
        kind=raw["type"].split(":")[-1],
        name=raw["urn"].split("::")[-1],
        id=raw.get("id", ""),
        inputs=raw.get("inputs", {}),
        outputs=raw.get("outputs", {}),
    )


def _unsealed(value: Any) -> Any:
    """Return *value* with a word in place of each secret: the engine seals them anew at every write."""
    if isinstance(value, dict):
        if SEALED in value:
            return "sealed"
        return {name: _unsealed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_unsealed(item) for item in value]
    return value


def members(group: Resource) -> list[dict[str, Any]]:
    """Return the hosts that a group lists."""
    found: list[dict[str, Any]] = json.loads(group.outputs.get("members") or "[]")
    return found
