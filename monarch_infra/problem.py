"""How monarch-infra says that something is wrong.

    InfraError                      1   any other failure
    +-- CredentialsError            3   get credentials, or the right to use them
    +-- PartError                   4   part was done, the rest failed: the message lists which part
    +-- RefusedError                5   a policy, a protection or a limit forbids it
    +-- NotFoundError               6   name a job, target, mesh or rank that exists
    +-- PlanStaleError              7   the world moved since the plan was made: plan again
    +-- CancelledError              8   you stopped it: go on, or destroy
    +-- TimedOutError               9   our own limit passed while hosts were still coming
    +-- LockedError                10   somebody else is applying: wait
    +-- CapacityError              11   no capacity or quota: ask elsewhere, for less, or later
    +-- NotReadyError              12   hosts exist but do not answer: look at them
    +-- EngineError                13   the engine or a plug-in is missing or of a wrong version
    +-- UsageError                 64   type the command differently
    +-- SpecError                  65   change the job file
    +-- BugError                  255   nothing you did: report it

One class per thing the caller can do about it, not per thing that can go wrong.
This module imports nothing of ours and nothing heavy, so that every command can say what is wrong.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Where:
    """A place in a file the user wrote: the 1-based line and column, and the line's text."""

    file: str
    line: int
    column: int
    text: str = ""


@dataclass(frozen=True)
class Problem:
    """One thing wrong.

    `summary` is constant per kind and holds no text of the user's; `detail` says what was found and why
    it cannot work; `hint` is an instruction.
    """

    summary: str
    detail: str = ""
    hint: str = ""
    where: Where | None = None
    is_warning: bool = False


class InfraError(Exception):
    """Base of everything a user can act on: one problem, or several of one file."""

    code = 1

    def __init__(
        self,
        summary: str,
        detail: str = "",
        *,
        hint: str = "",
        where: Where | None = None,
        problems: Iterable[Problem] = (),
        done: Iterable[str] = (),
        next_command: str = "",
    ) -> None:
        self.problems = tuple(problems) or (Problem(summary, detail, hint, where),)
        self.done = tuple(done)
        """What was done and what is running now, a line each."""
        self.next_command = next_command
        """The one command to type next."""
        super().__init__(summary)

    def __str__(self) -> str:
        return "; ".join(f"{p.summary}: {p.detail}" if p.detail else p.summary for p in self.problems)


class CredentialsError(InfraError):
    code = 3


class PartError(InfraError):
    code = 4


class RefusedError(InfraError):
    code = 5


class NotFoundError(InfraError):
    code = 6


class PlanStaleError(InfraError):
    code = 7


class CancelledError(InfraError):
    code = 8


class TimedOutError(InfraError):
    code = 9


class LockedError(InfraError):
    code = 10


class CapacityError(InfraError):
    code = 11


class NotReadyError(InfraError):
    code = 12


class EngineError(InfraError):
    code = 13


class UsageError(InfraError):
    code = 64


class SpecError(InfraError):
    code = 65

    def __init__(self, problems: Iterable[Problem]) -> None:
        problems = tuple(problems)
        super().__init__(problems[0].summary, problems=problems)


class BugError(InfraError):
    code = 255


EXIT_OK = 0
EXIT_CHANGES = 2
"""Changes or drift present, only with `--detailed-exitcode`; a wrong command line is 64, so that 2 has one meaning."""
EXIT_KILLED = 130
"""A second Ctrl-C."""


@dataclass
class Report:
    """Problems gathered while something is read, so that all of them can be told at once."""

    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if not problem.is_warning]

    @property
    def warnings(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.is_warning]
