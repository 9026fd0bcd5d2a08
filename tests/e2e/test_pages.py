"""The README's first minute and every folder of examples are typed as they stand, and print what they show."""

import shutil
from pathlib import Path

import pytest

from e2e import transcript
from e2e.shell import TOP, Shell

EXAMPLES = sorted(path.parent for path in (TOP / "examples").glob("*/README.md"))


def test_the_first_minute_is_true(tmp_path: Path) -> None:
    """C16: the README's commands in an empty directory print what the README shows."""
    shell = Shell(tmp_path)
    try:
        printed = transcript.play(shell, TOP / "README.md")
    finally:
        shell.end()

    assert printed == transcript.expected(TOP / "README.md")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_does_what_its_page_shows(example: Path, tmp_path: Path) -> None:
    """An example is a job that runs: what its README types works in a copy of it, and leaves no host."""
    folder = tmp_path / example.name
    shutil.copytree(example, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    shell = Shell(folder)
    try:
        printed = transcript.play(shell, example / "README.md")
        left = shell.hosts()
    finally:
        shell.end()

    assert printed == transcript.expected(example / "README.md")
    assert left == {}
