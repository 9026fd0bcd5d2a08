"""Colour, where a terminal shows it.

Colour never carries meaning alone: every mark has its character.
"""

from dataclasses import dataclass

CODES = {"+": "32", "~": "33", "±": "35", "-": "31", "error": "1;31", "hint": "36", "bold": "1", "dim": "2"}


@dataclass(frozen=True)
class Style:
    """Paints text, or leaves it as it is."""

    is_coloured: bool = False

    def paint(self, text: str, role: str) -> str:
        return f"\x1b[{CODES[role]}m{text}\x1b[0m" if self.is_coloured and text else text


PLAIN = Style()


def visible(text: str) -> str:
    """Return *text* with a mark in place of each character that does not show.

    Such a character can move the cursor or turn the direction of reading, so that a line says something else than
    it does.
    """
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
