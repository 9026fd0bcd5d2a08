"""What a caller can do about an error decides its class and its exit code."""

from collections.abc import Iterator

import pytest

from monarch_infra import problem
from monarch_infra.problem import InfraError, Problem, Report, SpecError

CODES = {
    "InfraError": 1,
    "CredentialsError": 3,
    "PartError": 4,
    "RefusedError": 5,
    "NotFoundError": 6,
    "PlanStaleError": 7,
    "CancelledError": 8,
    "TimedOutError": 9,
    "LockedError": 10,
    "CapacityError": 11,
    "NotReadyError": 12,
    "EngineError": 13,
    "UsageError": 64,
    "SpecError": 65,
    "BugError": 255,
}
"""The exit codes that users' scripts rely on; a change here is a change of the command's interface."""


def family(kind: type[InfraError]) -> Iterator[type[InfraError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from family(child)


def test_every_kind_of_error_has_its_exit_code() -> None:
    """No code has two meanings, and none is one that shells or `--detailed-exitcode` use."""
    codes = {kind.__name__: kind.code for kind in family(InfraError) if kind.__module__ == problem.__name__}

    assert codes == CODES
    assert len(set(codes.values())) == len(codes)
    assert not set(codes.values()) & {problem.EXIT_OK, problem.EXIT_CHANGES, problem.EXIT_KILLED, 125, 126, 127}


def test_the_page_of_the_module_is_its_tree() -> None:
    """The table in the docstring is what a reader sees first."""
    rows = (line.split() for line in (problem.__doc__ or "").splitlines() if line.startswith("    "))

    assert {
        name: code
        for row in rows
        for name, code in [(row[1], int(row[2])) if row[0] == "+--" else (row[0], int(row[1]))]
    } == CODES


def test_several_problems_are_one_error() -> None:
    """A file is reported whole."""
    error = SpecError(Problem(f"number {n}") for n in range(3))

    assert [p.summary for p in error.problems] == ["number 0", "number 1", "number 2"]
    assert str(error) == "number 0; number 1; number 2"


def test_an_error_without_words_for_its_problem_makes_one() -> None:
    """`problems` is never empty, so a caller need not ask."""
    assert InfraError("wrong", "why", hint="how").problems == (Problem("wrong", "why", "how"),)


@pytest.mark.parametrize("is_warning", [True, False])
def test_a_report_tells_warnings_from_errors(is_warning: bool) -> None:
    """Only errors stop a command."""
    report = Report([Problem("a", is_warning=is_warning)])

    assert bool(report.warnings) is is_warning
    assert bool(report.errors) is not is_warning
