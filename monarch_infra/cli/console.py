"""Where everything that is printed goes through: what was asked for to stdout, the talk to stderr.

The one sink of the command, so that what must not be seen is masked in one place.
"""

import json
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from monarch_infra import render
from monarch_infra.problem import InfraError, Problem
from monarch_infra.render import Style

MASK = "***"
SECRET_MIN = 8
"""A shorter value would mask ordinary words; nothing secret of ours is that short."""


class Console:
    """Standard output and error of one command."""

    def __init__(self) -> None:
        self.wants_json = False
        self._colour = "auto"
        self._secrets: set[str] = set()

    def choose_colour(self, when: str) -> None:
        self._colour = when

    def hide(self, values: Iterable[str]) -> None:
        """Mask *values* in everything that is printed from now on."""
        self._secrets.update(value for value in values if len(value) >= SECRET_MIN)

    @property
    def out_style(self) -> Style:
        return Style(self._is_coloured(sys.stdout))

    @property
    def error_style(self) -> Style:
        return Style(self._is_coloured(sys.stderr))

    @property
    def is_live(self) -> bool:
        """True where lines can be written over: a terminal that is not a dumb one."""
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def can_ask(self) -> bool:
        return sys.stdin is not None and sys.stdin.isatty()

    def out(self, text: str) -> None:
        """Print what was asked for."""
        sys.stdout.write(self._masked(text))
        sys.stdout.flush()

    def document(self, value: dict[str, Any]) -> None:
        """Print the one document of `--json`."""
        self.out(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def say(self, text: str) -> None:
        """Print talk: progress, warnings, questions."""
        sys.stderr.write(self._masked(text))
        sys.stderr.flush()

    def warn(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            self.say(render.problem_text(problem, self.error_style))

    def ask(self, question: str) -> str:
        self.say(question)
        return sys.stdin.readline().strip()

    def fail(self, error: InfraError) -> int:
        """Print an error, for people on stderr and with `--json` also as the document; return its exit code."""
        if self.wants_json:
            self.document(render.error_json(error))
        self.say(render.error_text(error, self.error_style))
        return error.code

    def _masked(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def _is_coloured(self, stream: TextIO) -> bool:
        if self._colour != "auto":
            return self._colour == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("CLICOLOR_FORCE", "0") != "0":
            return True
        return stream.isatty() and os.environ.get("TERM") != "dumb"


console = Console()
