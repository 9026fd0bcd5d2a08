"""Steps of the engine, read as the lines of a Plan.

A step's paths name kinds of work with the ranks they touch, as `made["2-3"]`, and the settings behind them; both
were decided before this module sees them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from monarch_infra.model import Action, Change, JobSpec, Json, MeshSpec, Plan, Reason, Step, Verdict, unranges

WORK = re.compile(r'^(\w+)\["(.+)"\]$')
STRAYS = re.compile(r'^strays\["(\w+)\[(.+)\]"\]$')

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

ENDS_MAX = 2
"""A plan names so many different ends of hosts and counts the rest; a thousand hosts rarely die of more."""

CUT_OFF = "left by an apply that was cut off"


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
    others = tuple(reason for reason in settings if reason.path != "hosts")
    work = {match[1]: unranges(match[2]) for path in step.paths if (match := WORK.match(path))}
    # Where no host that serves is touched by a setting, it is told with the hosts that are made by it.
    untold = () if work.keys() & {"changed", "restarted", "replaced"} else others
    for kind, ranks in work.items():
        reasons: tuple[Reason, ...] = others
        effect = ""
        if kind == "made":
            reasons = (*_count(step, ranks, "not made yet"), *untold)
        elif kind == "removed":
            reasons = _count(step, ranks, CUT_OFF)
        elif kind == "lost":
            reasons = (*_ends(step, ranks), *untold)
        elif kind == "finished":
            reasons = (Reason(text="made already, not serving yet"), *untold)
        elif kind == "restarted":
            effect = f"{len(ranks)} worker{'s' * (len(ranks) != 1)} restart{'s' * (len(ranks) == 1)}"
        elif kind == "replaced":
            effect = "new hosts, held before the old ones go"
        yield Change(mesh=step.name, action=ACTIONS[kind], ranks=ranks, reasons=reasons, effect=effect)


def _count(step: Step, ranks: Iterable[int], otherwise: str) -> tuple[Reason, ...]:
    """Return why *ranks* are made or removed: the mesh grows or shrinks by them, or *otherwise*."""
    old, new = step.old["hosts"], step.new["hosts"]
    by_count = {rank for rank in ranks if min(old, new) <= rank < max(old, new)}
    reasons = [Reason(path="hosts", old=old, new=new)] if by_count else []
    return (*reasons, Reason(text=otherwise)) if set(ranks) - by_count else tuple(reasons)


def _strays(step: Step) -> Iterator[Change]:
    why = (Reason(text=CUT_OFF),)
    if step.op == "delete":
        for mesh, hosts in (step.made.get("strays") or {}).items():
            ranks = tuple(sorted({int(host.partition(".")[0]) for host in hosts}))
            yield Change(mesh=mesh, action=Action.DELETE, ranks=ranks, reasons=why)
    if step.op == "update" and "options" in step.paths:
        yield Change(mesh="", action=Action.UPDATE, ranks=(), reasons=(_setting("options", step),))
    for path in step.paths:
        if match := STRAYS.match(path):
            yield Change(mesh=match[1], action=Action.DELETE, ranks=unranges(match[2]), reasons=why)


def _standing(step: Step) -> tuple[int, ...]:
    """Return the ranks of a group that have a host."""
    listed = [host["rank"] for host in json.loads(step.made.get("members") or "[]")]
    coming = [host["rank"] for host in step.made.get("unfinished") or () if host.get("phase") not in (None, "ended")]
    surplus = [int(host.partition(".")[0]) for host in step.made.get("surplus") or ()]
    return tuple(sorted({*listed, *coming, *surplus}))


def _ends(step: Step, ranks: Iterable[int]) -> tuple[Reason, ...]:
    """Return how the hosts of *ranks* ended, each way once."""
    lost = set(ranks)
    known = {host.get("reason") or "gone" for host in step.made.get("unfinished") or () if host["rank"] in lost}
    ways = sorted(known or {"gone"})
    told = [Reason(text=f"lost: {way}") for way in ways[:ENDS_MAX]]
    if hidden := len(ways) - len(told):
        told.append(Reason(text=f"and {hidden} other reason{'s' * (hidden > 1)}"))
    return tuple(told)


def _setting(path: str, step: Step) -> Reason:
    # What holds its default stands in no inputs.
    default = MeshSpec.model_fields[path].get_default() if path in MeshSpec.model_fields else None
    old, new = (default if (value := _at(inputs, path)) is None else value for inputs in (step.old, step.new))
    return Reason(path=path, old=old, new=new)


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
