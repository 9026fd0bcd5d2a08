"""Types what a page shows and compares what is printed with what the page says."""

import re
from dataclasses import dataclass
from pathlib import Path

from e2e.shell import Shell

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)

VOLATILE = [
    (re.compile(r"\b(spec|state|deployment) [0-9a-f]{7,8}\b"), r"\1 …"),
    (re.compile(r"^(engine [\d.]+): .*$", re.MULTILINE), r"\1: …"),
    (re.compile(r"^(\w+\[\d+\]) +\S+ +pid \d+ +(monarch [\d.]+) +python [\d.]+ +[\d.]+ ms$", re.MULTILINE), r"\1 \2"),
]
"""What differs from run to run and from machine to machine; everything else must be as it stands on the page."""


@dataclass(frozen=True)
class Typed:
    """One command of a page with what should stand under it."""

    command: str
    shown: str


def commands(page: Path) -> list[Typed]:
    """Return what the console blocks of *page* type, in order."""
    found = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append(Typed(command, shown))
    return found


def redacted(text: str) -> str:
    for pattern, instead in VOLATILE:
        text = pattern.sub(instead, text)
    return text


def play(shell: Shell, page: Path) -> list[tuple[str, str]]:
    """Type the page's commands in one shell, one after the other, and return each with what it printed, redacted."""
    typed = commands(page)
    script = "".join(f"{each.command}\nprintf '\\n@@ %s\\n' $?\n" for each in typed)
    done = shell.run("bash", "-c", script)
    printed = re.split(r"\n@@ (\d+)\n", done.out)
    codes = printed[1::2]
    assert codes == ["0"] * len(typed), done.err
    return [(each.command, redacted(text)) for each, text in zip(typed, printed[::2], strict=False)]


def expected(page: Path) -> list[tuple[str, str]]:
    """Return the page's commands, each with what stands under it, redacted."""
    return [(each.command, redacted(each.shown)) for each in commands(page)]
