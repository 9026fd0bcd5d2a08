"""Two plans side by side: whether what is asked to be done now was approved, and what moved since.

Only the work counts.  Verdicts, prices and digests inform a reader and may differ.
"""

import json
from collections.abc import Callable, Iterable

from monarch_infra.model import Change, Plan

LINES_MAX = 4
"""A refusal is read under pressure: so many differences are named, the rest counted."""


def moved(approved: Plan, now: Plan, line: Callable[[Change], str]) -> list[str]:
    """Return what differs between the plan that was approved and the one of this moment; empty if nothing does."""
    differences = []
    if approved.deployment != now.deployment:
        differences.append(f"the deployment was {approved.deployment or 'none'} and is {now.deployment or 'none'}")
    if approved.ends_deployment != now.ends_deployment:
        differences.append("the deployment ends" if now.ends_deployment else "the deployment does not end")
    differences += [f"approved, not needed now: {line(change)}" for change in _without(approved, now)]
    differences += [f"needed now, not approved: {line(change)}" for change in _without(now, approved)]
    return _bounded(differences)


def uncovered(approved: Plan, now: Plan, line: Callable[[Change], str]) -> list[str]:
    """Return the work of *now* that is no part of what was approved: a begun plan may only be finished."""
    allowed: dict[str, set[int]] = {}
    for change in approved.changes:
        allowed.setdefault(change.mesh, set()).update(change.ranks)
    extra = [c for c in now.changes if c.mesh not in allowed or not set(c.ranks) <= allowed[c.mesh]]
    return _bounded([f"needed now, not approved: {line(change)}" for change in extra])


def _without(plan: Plan, other: Plan) -> Iterable[Change]:
    known = {_key(change) for change in other.changes}
    return [change for change in plan.changes if _key(change) not in known]


def _key(change: Change) -> str:
    """Return a text that equal changes share; values of settings cannot be hashed, and meshes may be a thousand."""
    return json.dumps(change.plain(), sort_keys=True)


def _bounded(lines: list[str]) -> list[str]:
    if len(lines) <= LINES_MAX:
        return lines
    return [*lines[: LINES_MAX - 1], f"and {len(lines) - LINES_MAX + 1} more differences"]
