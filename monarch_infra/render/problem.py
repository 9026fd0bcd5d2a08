"""Problems and errors, as a person and as a program reads them."""

from typing import Any
from unicodedata import combining, east_asian_width

from monarch_infra.problem import InfraError, Problem, Where
from monarch_infra.render.style import PLAIN, Style, visible

FORMAT_VERSION = "1.0"
LINE_MAX = 160
"""A longer source line is cut around the caret, so that a minified file does not flood the terminal."""


def problem_text(problem: Problem, style: Style = PLAIN) -> str:
    """Return one problem with its place, the line with a caret, what was found, and what to do."""
    kind = "warning" if problem.is_warning else "error"
    lines = [f"{style.paint(kind + ':', 'error')} {problem.summary}"]
    if problem.where is not None:
        lines += _place(problem.where)
    if problem.detail:
        lines.append(problem.detail)
    if problem.hint:
        lines.append(f"{style.paint('hint:', 'hint')} {problem.hint}")
    return "\n".join(lines) + "\n"


def _place(where: Where) -> list[str]:
    lines = [f"  {where.file}:{where.line}:{where.column}"]
    if not where.text.strip():
        return lines
    start = max(0, where.column - 1 - LINE_MAX // 2) if len(where.text) > LINE_MAX else 0
    shown = visible(where.text[start : start + LINE_MAX].replace("\t", " "))
    gutter = f"  {where.line} | "
    indent = _cells(shown[: where.column - 1 - start])
    return [*lines, gutter + shown, " " * (len(gutter) - 2) + "| " + " " * indent + "^"]


def _cells(text: str) -> int:
    """Return how many cells of a terminal *text* fills: none for an accent of its own, two for a wide character."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def error_text(error: InfraError, style: Style = PLAIN) -> str:
    """Return everything an error has to say: its problems, what stands now, the next command."""
    parts = ["\n".join(problem_text(problem, style) for problem in error.problems)]
    if error.done:
        parts.append("".join(f"{line}\n" for line in error.done))
    if error.next_command:
        parts.append(f"next: {error.next_command}\n")
    return "".join(parts)


def error_json(error: InfraError) -> dict[str, Any]:
    """Return an error as the one document that `--json` prints."""
    first = error.problems[0]
    return {
        "format_version": FORMAT_VERSION,
        "error": {
            "code": error.code,
            "summary": first.summary,
            "detail": first.detail,
            "where": _where(first.where),
            "hint": first.hint,
            "problems": [
                {"summary": p.summary, "detail": p.detail, "where": _where(p.where), "hint": p.hint}
                for p in error.problems
            ],
            "done": list(error.done),
            "next": error.next_command,
        },
    }


def _where(where: Where | None) -> dict[str, Any] | None:
    return None if where is None else {"file": where.file, "line": where.line, "column": where.column}
