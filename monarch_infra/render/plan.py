"""A plan as text of bounded length, and as JSON."""

import json
from collections import Counter
from itertools import takewhile
from typing import Any

from monarch_infra.model import Action, Change, Plan, Reason, ranges
from monarch_infra.render.problem import FORMAT_VERSION
from monarch_infra.render.style import PLAIN, Style, visible

ROWS_MAX = 28
"""With its frame a plan stays within 40 lines, however many meshes change ..."""
ROWS_BYTES_MAX = 2800
"""... and with it within 4 kB, however long their names and values are."""
NOTES_MAX = 4
NOTE_BYTES_MAX = 160
"""A provider's verdicts, and the settings that it ignores, stand below the lines and have the rest of the 4 kB."""
REASONS_MAX = 3
PATH_MAX = 60
WORDS_MAX = 80
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
        lines.append(f"  {_note(plan.provider + ' ignores: ' + ', '.join(plan.ignored))}")
    lines += notes(plan)
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
    """Return a row per mesh and kind of change, the ranks as ranges; as many as fit, in the plan's own order."""
    cells = [(change.action.value, _ranks(change), _why(change)) for change in plan.changes[:ROWS_MAX]]
    fitting = len(cells)
    while fitting > 1 and _bytes(_aligned(cells[:fitting], PLAIN)) > ROWS_BYTES_MAX:
        fitting -= 1
    lines = _aligned(cells[:fitting], style)
    if hidden := len(plan.changes) - len(lines):
        lines.append(f"     and {count_of(hidden, 'more line')}: --json has all")
    return lines


def notes(plan: Plan) -> list[str]:
    """Return what the provider says of the plan, its refusals first."""
    verdicts = sorted(plan.verdicts, key=lambda verdict: not verdict.is_refusal)
    lines = [f"  {'refused: ' if v.is_refusal else ''}{_note(v.text)}" for v in verdicts[:NOTES_MAX]]
    if hidden := len(verdicts) - len(lines):
        lines.append(f"  and {count_of(hidden, 'more note')}: --json has all")
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


def _aligned(cells: list[tuple[str, str, str]], style: Style) -> list[str]:
    width = max((len(ranks) for _, ranks, _ in cells), default=0)
    return [f"  {style.paint(mark, mark)}  {ranks:{width}}  {why}".rstrip() for mark, ranks, why in cells]


def _bytes(lines: list[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _ranks(change: Change) -> str:
    text = ranges(change.ranks)
    if not text:
        return change.mesh or "(all meshes)"  # it stands in the state without a host, or is no mesh's own
    if len(text) > RANGES_MAX:
        text = text[:RANGES_MAX].rsplit(",", 1)[0] + ",…"
    return f"{change.mesh}[{text}]"


def _why(change: Change) -> str:
    told = change.reasons if len(change.reasons) <= REASONS_MAX else change.reasons[: REASONS_MAX - 1]
    reasons = [_reason(reason) for reason in told]
    if hidden := len(change.reasons) - len(told):
        reasons.append(f"and {hidden} more")
    if not reasons and change.action is Action.CREATE:
        reasons = [count_of(len(change.ranks), "host")]
    text = ", ".join(reasons)
    return f"{text}   {change.effect}" if change.effect else text


def _reason(reason: Reason) -> str:
    if not reason.path:
        return _short(reason.text, WORDS_MAX)
    return setting_line(_short(reason.path, PATH_MAX), reason.old, reason.new)


def setting_line(path: str, before: Any, after: Any) -> str:
    """Return how one setting changed, in bounded length."""
    old, new = _value(before), _value(after)
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))))
    # Two long values that begin alike are shown from where they part, or the line would name no difference.
    start = same - VALUE_MAX // 4 if same >= VALUE_MAX - 1 else 0
    return f"{path} {_cut(old, start)} -> {_cut(new, start)}"


def _value(value: Any) -> str:
    return "(none)" if value is None else visible(json.dumps(value, ensure_ascii=False, sort_keys=True))


def _cut(value: str, start: int) -> str:
    shown = f"…{value[start + 1 :]}" if start else value
    return shown if len(shown) <= VALUE_MAX else shown[: VALUE_MAX - 1] + "…"


def _short(text: str, most: int) -> str:
    """Return *text* in one line of bounded length, with nothing in it that a terminal would obey."""
    shown = visible(" ".join(text.split()))
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _note(text: str) -> str:
    shown = _short(text, NOTE_BYTES_MAX)
    if len(shown.encode()) <= NOTE_BYTES_MAX:
        return shown
    return shown.encode()[:NOTE_BYTES_MAX].decode(errors="ignore") + "…"


def count_of(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
