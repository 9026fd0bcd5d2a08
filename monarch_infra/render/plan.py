"""A plan as text of bounded length, and as JSON."""

import json
from collections import Counter
from typing import Any

from monarch_infra.model import Action, Change, Plan, Reason, ranges
from monarch_infra.render.problem import FORMAT_VERSION
from monarch_infra.render.style import PLAIN, Style

ROWS_MAX = 30
"""With its frame a plan stays within 40 lines, however many meshes change."""
REASONS_MAX = 3
VALUE_MAX = 40
RANGES_MAX = 48
"""Ranks that died here and there make a long list of ranges; a plan shows its beginning."""


def plan_text(plan: Plan, style: Style = PLAIN) -> str:
    """Return what a person reads before he says yes.  The same plan always gives the same text."""
    state = f" · state {plan.state_digest[:7]}" if plan.state_digest else ""
    head = f"{plan.job} on {plan.target}    spec {plan.spec_digest[:7]}{state}"
    lines = [style.paint(head, "bold"), ""]
    if plan.is_empty:
        lines.append(nothing_to_do(plan))
    else:
        lines += [f"  {totals(plan)}", *rows(plan, style)]
    if plan.ignored:
        lines.append(f"  {plan.provider} ignores: {', '.join(plan.ignored)}")
    lines += [f"  {'refused: ' if verdict.is_refusal else ''}{verdict.text}" for verdict in plan.verdicts]
    return "\n".join(lines) + "\n"


def nothing_to_do(plan: Plan) -> str:
    if plan.destroys:
        return "nothing to do: nothing stands"
    meshes, hosts = len(plan.unchanged), sum(plan.unchanged.values())
    return f"nothing to do: {count_of(meshes, 'mesh matches', 'meshes match')}, {count_of(hosts, 'host')}"


def totals(plan: Plan) -> str:
    """Return how many hosts are made, changed, replaced and removed."""
    count: Counter[Action] = Counter()
    for change in plan.changes:
        count[change.action] += len(change.ranks)
    parts = [f"{action.value} {count[action]}" for action in (Action.CREATE, Action.UPDATE, Action.REPLACE)]
    tail = "   and the deployment ends" if plan.ends_deployment else ""
    return "   ".join([*parts, f"- {count[Action.DELETE]}"]) + " hosts" + tail


def rows(plan: Plan, style: Style = PLAIN) -> list[str]:
    """Return a row per mesh and kind of change, the ranks as ranges."""
    shown = plan.changes[:ROWS_MAX]
    width = max((len(_ranks(change)) for change in shown), default=0)
    lines = [
        f"  {style.paint(change.action.value, change.action.value)}  {_ranks(change):{width}}  {_why(change)}".rstrip()
        for change in shown
    ]
    if hidden := len(plan.changes) - len(shown):
        lines.append(f"     and {count_of(hidden, 'more line')}: --json has all")
    return lines


def change_line(change: Change) -> str:
    """Return one change in one line, for messages."""
    return f"{change.action.value} {_ranks(change)} {_why(change)}".rstrip()


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return a plan as the one document that `--json` prints."""
    document = plan.model_dump(mode="json")
    for change, written in zip(plan.changes, document["changes"], strict=True):
        written["ranks"] = ranges(change.ranks)
        written["hosts"] = len(change.ranks)
    return {"format_version": FORMAT_VERSION, "digest": plan.digest, "is_empty": plan.is_empty, **document}


def _ranks(change: Change) -> str:
    text = ranges(change.ranks)
    if len(text) > RANGES_MAX:
        text = text[:RANGES_MAX].rsplit(",", 1)[0] + ",…"
    return f"{change.mesh}[{text}]"


def _why(change: Change) -> str:
    reasons = [_reason(reason) for reason in change.reasons[:REASONS_MAX]]
    if hidden := len(change.reasons) - REASONS_MAX:
        reasons += [f"and {hidden} more"] if hidden > 0 else []
    if not reasons and change.action is Action.CREATE:
        reasons = [count_of(len(change.ranks), "host")]
    text = ", ".join(reasons)
    return f"{text}   {change.effect}" if change.effect else text


def _reason(reason: Reason) -> str:
    if not reason.path:
        return reason.text
    return f"{reason.path} {_value(reason.old)} -> {_value(reason.new)}"


def _value(value: Any) -> str:
    if value is None:
        return "(none)"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_MAX else text[: VALUE_MAX - 1] + "…"


def count_of(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
