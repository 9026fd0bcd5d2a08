"""Steps of the engine, read as the lines of a Plan.

A step's paths name kinds of work with the ranks they touch, as `made["2-3"]`, and the settings behind them; both
were decided before this module sees them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from monarch_infra.model import Action, Change, JobSpec, Json, Plan, Reason, Step, Verdict, unranges

WORK = re.compile(r'^(\w+)\["(.+)"\]$')

ACTIONS: Mapping[str, Action] = {
    "made": Action.CREATE,
    "finished": Action.CREATE,
    "lost": Action.REPLACE,
    "replaced": Action.REPLACE,
    "restarted": Action.UPDATE,
    "changed": Action.UPDATE,
    "removed": Action.DELETE,
}
SEVERITY = (Action.DELETE, Action.REPLACE, Action.UPDATE, Action.CREATE)
"""The order of a plan's lines: what takes something away is read first."""

LOST_REASONS_MAX = 3
"""A plan names so many different ends of hosts; a thousand hosts rarely die of more."""


def read(
    spec: JobSpec,
    steps: Iterable[Step],
    *,
    state_digest: str | None = None,
    deployment: str | None = None,
    standing: Mapping[str, int] | None = None,
    destroys: bool = False,
    ignored: Iterable[str] = (),
    verdicts: Iterable[Verdict] = (),
) -> Plan:
    """Return the plan that *steps* describe.

    *standing* is mesh -> hosts of the stack as it is.  Changes are sorted, so the same preview always gives the
    same text.
    """
    steps = list(steps)
    changes = [change for step in steps for change in _changes(step, destroys)]
    touched = {change.mesh for change in changes}
    return Plan(
        job=spec.name,
        target=spec.target,
        provider=spec.provider,
        spec_digest=spec.digest,
        state_digest=state_digest,
        deployment=deployment,
        destroys=destroys,
        ends_deployment=any(step.kind == "Deployment" and step.op == "delete" for step in steps),
        changes=tuple(sorted(changes, key=lambda c: (SEVERITY.index(c.action), c.mesh, c.ranks))),
        unchanged={mesh: hosts for mesh, hosts in sorted((standing or {}).items()) if mesh not in touched},
        ignored=tuple(sorted(ignored)),
        verdicts=tuple(verdicts),
    )


def _changes(step: Step, destroys: bool) -> Iterator[Change]:
    if step.kind == "Site":
        yield from _strays(step)
    elif step.kind != "HostGroup":
        return
    elif step.op == "create":
        yield Change(mesh=step.name, action=Action.CREATE, ranks=tuple(range(step.new["hosts"])))
    elif step.op == "delete":
        why = Reason(text="destroyed" if destroys else "not in the job file any more")
        yield Change(mesh=step.name, action=Action.DELETE, ranks=_standing(step), reasons=(why,))
    else:
        yield from _updates(step)


def _updates(step: Step) -> Iterator[Change]:
    settings = tuple(_setting(path, step) for path in sorted(step.paths) if not WORK.match(path))
    count = tuple(reason for reason in settings if reason.path == "hosts")
    others = tuple(reason for reason in settings if reason.path != "hosts")
    for path in step.paths:
        match = WORK.match(path)
        if match is None:
            continue
        kind, ranks = match[1], unranges(match[2])
        reasons: tuple[Reason, ...] = others
        effect = ""
        if kind in ("made", "removed"):
            reasons = count or (Reason(text="not made yet" if kind == "made" else "left by an apply that was cut off"),)
        elif kind == "lost":
            reasons = tuple(Reason(text=text) for text in _ends(step, ranks))
        elif kind == "finished":
            reasons = (Reason(text="made already, not serving yet"),)
        elif kind == "restarted":
            effect = f"{len(ranks)} worker{'s' * (len(ranks) != 1)} restart{'s' * (len(ranks) == 1)}"
        elif kind == "replaced":
            effect = "new hosts, held before the old ones go"
        yield Change(mesh=step.name, action=ACTIONS[kind], ranks=ranks, reasons=reasons, effect=effect)


def _strays(step: Step) -> Iterator[Change]:
    strays: Json = step.made.get("strays") or {}
    wanted = set(step.new.get("meshes") or ())
    for mesh, ranks in sorted(strays.items()):
        if step.op == "delete" or mesh not in wanted:
            why = Reason(text="left by an apply that was cut off")
            yield Change(mesh=mesh, action=Action.DELETE, ranks=tuple(ranks), reasons=(why,))


def _standing(step: Step) -> tuple[int, ...]:
    """Return the ranks of a group that have a host."""
    listed = [host["rank"] for host in json.loads(step.made.get("members") or "[]")]
    coming = [host["rank"] for host in step.made.get("unfinished") or () if host.get("phase") not in (None, "ended")]
    return tuple(sorted({*listed, *coming}))


def _ends(step: Step, ranks: Iterable[int]) -> list[str]:
    """Return how the hosts of *ranks* ended, each way once."""
    gone = set(ranks)
    reasons = sorted(
        {host.get("reason") or "gone" for host in step.made.get("unfinished") or () if host["rank"] in gone}
    )
    if len(reasons) > LOST_REASONS_MAX:
        reasons = [*reasons[:LOST_REASONS_MAX], f"and {len(reasons) - LOST_REASONS_MAX} other reasons"]
    return [f"lost: {reason}" if not reason.startswith("and ") else reason for reason in reasons or ["gone"]]


def _setting(path: str, step: Step) -> Reason:
    return Reason(path=path, old=_at(step.old, path), new=_at(step.new, path))


def _at(values: Json, path: str) -> Any:
    """Return the value at a dotted path.  A key may hold dots itself, so the longest that fits is taken."""
    if path in values:
        return values[path]
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        head, rest = ".".join(parts[:length]), ".".join(parts[length:])
        if isinstance(values.get(head), Mapping):
            return _at(values[head], rest)
    return None
