"""What was done, what stands and who answered, as text and JSON."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from monarch_infra.model import Action, Applied, PingAnswer, Standing
from monarch_infra.render.plan import count_of, plan_json
from monarch_infra.render.problem import FORMAT_VERSION
from monarch_infra.render.style import PLAIN, Style

DONE = {
    Action.CREATE: "created",
    Action.UPDATE: "changed",
    Action.REPLACE: "replaced",
    Action.DELETE: "deleted",
}
NOTES_MAX = 3


def applied_text(done: Applied) -> str:
    """Return what an apply did, in one line; the same work always gives the same line."""
    plan = done.plan
    count: Counter[Action] = Counter()
    for change in plan.changes:
        count[change.action] += len(change.ranks)
    work = [f"{count[action]} {word}" for action, word in DONE.items() if count[action]]
    if plan.ends_deployment:
        removed, deployment = ", ".join(work) or "no host was left", (plan.deployment or "")[:8]
        return f"Done: {removed} · nothing of deployment {deployment} remains\n"
    serving = sum(len(mesh.hosts) for mesh in done.outputs.meshes.values()) if done.outputs else 0
    waiting = "".join(f" · {mesh}: {number} not serving yet" for mesh, number in sorted(done.unfinished.items()))
    head = "Asked" if done.unfinished else "Done"
    return f"{head}: {', '.join(work)} · {count_of(serving, 'host serves', 'hosts serve')}{waiting}\n"


def applied_json(done: Applied) -> dict[str, Any]:
    """Return what an apply did as the one document that `--json` prints."""
    return {
        "format_version": FORMAT_VERSION,
        "plan": plan_json(done.plan),
        "outputs": done.outputs.model_dump(mode="json") if done.outputs else None,
        "unfinished": done.unfinished,
    }


def status_text(standing: Standing, style: Style = PLAIN) -> str:
    """Return a table of the meshes."""
    if standing.deployment is None:
        return f"{standing.job} on {standing.target}    nothing was applied\n"
    head = f"{standing.job} on {standing.target}    deployment {standing.deployment[:8]}"
    if standing.state_digest:
        head += f" · state {standing.state_digest[:7]}"
    width = max([4, *(len(name) for name in standing.meshes)])
    lines = [style.paint(head, "bold"), f"{'MESH':{width}}  HOSTS  READY  NOTE"]
    for name, mesh in standing.meshes.items():
        notes = [*mesh.notes[:NOTES_MAX]]
        if hidden := len(mesh.notes) - len(notes):
            notes.append(f"and {hidden} more")
        lines.append(f"{name:{width}}  {mesh.wanted:<5}  {mesh.serving:<5}  {', '.join(notes)}".rstrip())
    if standing.changed:
        lines.append(f"The job file asks for something else: {'; '.join(standing.changed[:NOTES_MAX])}")
    return "\n".join(lines) + "\n"


def status_json(standing: Standing) -> dict[str, Any]:
    """Return what stands as the one document that `--json` prints."""
    return {"format_version": FORMAT_VERSION, **standing.model_dump(mode="json")}


def ping_text(answers: Iterable[PingAnswer]) -> str:
    """Return a line per host that answered."""
    rows = [
        (
            f"{a.mesh}[{a.rank}]",
            a.host,
            f"pid {a.worker_pid}",
            f"monarch {a.monarch}",
            f"python {a.python}",
            f"{a.rtt_ms} ms",
        )
        for a in answers
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(6)] if rows else []
    return "".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows
    )


def ping_json(answers: Iterable[PingAnswer]) -> dict[str, Any]:
    """Return the answers as the one document that `--json` prints."""
    return {"format_version": FORMAT_VERSION, "hosts": [answer.model_dump(mode="json") for answer in answers]}
