"""A problem is shown with its place; the caret stands under what is wrong."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch_infra.problem import BugError, InfraError, Problem, SpecError, Where
from monarch_infra.render import Style, error_json, error_text, problem_text

FUZZ = settings(max_examples=60, deadline=None)  # a deadline would fail on a busy machine


def place(text: str, column: int, line: int = 9) -> tuple[str, str]:
    """Return the line of the file as shown, and the line with the caret."""
    where = Where("job.yaml", line, column, text)
    _, name, shown, caret = problem_text(Problem("wrong", where=where)).splitlines()
    assert name == f"  job.yaml:{line}:{column}"
    return shown, caret


def cells(text: str) -> int:
    """Return how wide a terminal shows *text*."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)


def test_a_problem_reads_from_what_to_what_now() -> None:
    """Summary, place, line, caret, detail, hint."""
    problem = Problem(
        "setting not known",
        "A mesh has no setting `host`.",
        "did you mean `hosts`?",
        Where("job.yaml", 4, 5, "    host: 2"),
    )

    assert problem_text(problem) == (
        "error: setting not known\n"
        "  job.yaml:4:5\n"
        "  4 |     host: 2\n"
        "    |     ^\n"
        "A mesh has no setting `host`.\n"
        "hint: did you mean `hosts`?\n"
    )


def test_a_warning_says_that_it_is_one() -> None:
    """It stops nothing."""
    assert problem_text(Problem("no GPUs here", is_warning=True)) == "warning: no GPUs here\n"


@pytest.mark.parametrize("line", [1, 10, 12345])
def test_the_caret_stands_right_under_lines_of_any_number(line: int) -> None:
    """The gutter is as wide as the number."""
    shown, caret = place("a: b", 4, line)

    assert shown[caret.index("^")] == "b"
    assert shown.index("|") == caret.index("|")


@pytest.mark.parametrize(
    ("text", "column"),
    [
        pytest.param("\t\tname: X", 9, id="tabs"),
        pytest.param("名前: X", 5, id="wide"),
        pytest.param("ＡＢ X", 4, id="full width"),
        pytest.param("e\u0301e\u0301: X", 7, id="accents of their own"),
        pytest.param("naïve: X", 8, id="narrow"),
        pytest.param("\x1b[31m: X", 8, id="a terminal's own words"),
        pytest.param("x" * 500 + "X" + "x" * 500, 501, id="the middle of a long line"),
        pytest.param("x" * 500 + "X", 501, id="the end of a long line"),
        pytest.param("X" + "x" * 500, 1, id="the start of a long line"),
        pytest.param("字" * 500 + "X", 501, id="the end of a long wide line"),
    ],
)
def test_the_caret_stands_right_under_the_place(text: str, column: int) -> None:
    """In cells of a terminal, whatever stands before it."""
    shown, caret = place(text, column)

    at = caret.index("^")
    before = next(length for length in range(len(shown)) if cells(shown[:length]) == at and shown[length] == "X")
    assert shown[before] == "X"
    assert len(shown) < 180


def test_a_place_at_the_end_of_its_line_has_its_caret_behind_it() -> None:
    """Where something is missing."""
    assert place("name:", 6) == ("  9 | name:", "    |      ^")


def test_an_empty_line_is_not_shown() -> None:
    """Its number is enough."""
    assert problem_text(Problem("wrong", where=Where("job.yaml", 3, 1, "  "))) == "error: wrong\n  job.yaml:3:1\n"


@FUZZ
@given(st.text(max_size=400), st.integers(1, 401))
def test_no_line_of_a_file_can_flood_or_steer_a_terminal(text: str, column: int) -> None:
    """Every place can be shown."""
    shown = problem_text(Problem("wrong", where=Where("job.yaml", 1, column, text)))

    assert all(character.isprintable() or character == "\n" for character in shown)
    assert all(len(line) < 500 for line in shown.splitlines())


def test_an_error_says_what_was_done_and_what_to_type() -> None:
    """Every problem, then what stands, then the one command."""
    error = SpecError([Problem("one"), Problem("two", hint="three")])
    error.done, error.next_command = ("Now:", "  trainers: 1 of 2 hosts serve"), "monarch-infra apply"

    assert error_text(error) == (
        "error: one\n\nerror: two\nhint: three\nNow:\n  trainers: 1 of 2 hosts serve\nnext: monarch-infra apply\n"
    )


def test_colour_is_on_the_first_word_only() -> None:
    """The rest is the user's text."""
    assert problem_text(Problem("wrong"), Style(is_coloured=True)) == "\x1b[1;31merror:\x1b[0m wrong\n"


def test_the_document_of_an_error_has_its_code_and_every_problem() -> None:
    """A program reads the first problem at the top and all of them in a list."""
    error = SpecError([Problem("one", "why", "how", Where("job.yaml", 1, 2, "x")), Problem("two")])

    document = error_json(error)["error"]

    assert (document["code"], document["summary"], document["detail"], document["hint"]) == (65, "one", "why", "how")
    assert document["where"] == {"file": "job.yaml", "line": 1, "column": 2}
    assert [problem["summary"] for problem in document["problems"]] == ["one", "two"]


def test_an_error_as_text_for_a_log_is_one_line() -> None:
    """`str` is for logs, `render` for people."""
    assert str(InfraError("wrong", "because")) == "wrong: because"
    assert str(BugError("wrong")) == "wrong"
