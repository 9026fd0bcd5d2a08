"""The tree of a job file: values that know their place.

Nothing here knows what a setting means; merging and printing are the same for every tree.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from monarch_infra.problem import Problem, Where


class Place(NamedTuple):
    """A place in the file; both numbers start at 1."""

    line: int
    column: int


TOP = Place(1, 1)

LINE_SHOWN_MAX = 400
"""A file written on one line would fill the screen anew with each of its mistakes."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value."""

    place: Place
    value: str | int | float | bool | None
    text: str
    """As written, without the quotes."""
    is_removed: bool = False
    """A target's null: it takes the setting away."""
    size: int = 1
    height: int = 0


@dataclass(frozen=True, slots=True)
class List:
    """Several values."""

    place: Place
    items: "tuple[Node, ...]"
    size: int = 1
    height: int = 1


class Entry(NamedTuple):
    """One line of a map: where its key stands, and its value."""

    place: Place
    node: "Node"


@dataclass(frozen=True, slots=True)
class Map:
    """Values by name.  `size` and `height` count what the file says, before any merge."""

    place: Place
    entries: dict[str, Entry]
    size: int = 1
    height: int = 1

    def map(self, key: str) -> "Map | None":
        """Return the map under *key*; None where there is none or something else."""
        entry = self.entries.get(key)
        return entry.node if entry is not None and isinstance(entry.node, Map) else None

    def without(self, *keys: str) -> "Map":
        return replace(self, entries={key: entry for key, entry in self.entries.items() if key not in keys})

    def present(self) -> Iterator[tuple[str, Entry]]:
        """Return the entries that no target took away."""
        return ((key, entry) for key, entry in self.entries.items() if not is_removed(entry.node))


Node = Scalar | List | Map


def is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def is_removed(node: Node) -> bool:
    return isinstance(node, Scalar) and node.is_removed


def plain(node: Node) -> Any:
    """Return *node* as Python values."""
    if isinstance(node, Map):
        return {key: plain(entry.node) for key, entry in node.present()}
    if isinstance(node, List):
        return [plain(item) for item in node.items]
    return node.value


def moved(node: Node, place: Place) -> Node:
    """Return *node* as if it stood at *place*; what is inside it stays where it is."""
    return replace(node, place=place)


def merge(base: Node | None, patch: Node) -> Node:
    """Return *base* with *patch* laid over it: a JSON merge patch (RFC 7396).

    Every value keeps the place it comes from.  What a null takes away stays in the tree, marked as removed, so that
    a misspelt name in front of a null is still seen.
    """
    if not isinstance(patch, Map):
        return patch
    under = base if isinstance(base, Map) else None
    entries = dict(under.entries) if under else {}
    for key, entry in patch.entries.items():
        was = entries.get(key)
        if isinstance(entry.node, Scalar) and entry.node.value is None:
            entries[key] = Entry(entry.place, replace(entry.node, is_removed=True))
            continue
        both_maps = was is not None and isinstance(was.node, Map) and isinstance(entry.node, Map)
        place = was.place if was is not None and both_maps else entry.place
        entries[key] = Entry(place, merge(was.node if was else None, entry.node))
    return Map(under.place if under else patch.place, entries)


@dataclass
class Source:
    """The text of a job file, and what is found wrong in it."""

    file: str
    lines: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def where(self, place: Place) -> Where:
        """Return *place* with its line, unless that is too long to be shown."""
        text = self.lines[place.line - 1] if place.line <= len(self.lines) else ""
        text = text if len(text) <= LINE_SHOWN_MAX else ""
        return Where(self.file, place.line, place.column, text)

    def tell(self, place: Place, summary: str, detail: str = "", hint: str = "") -> None:
        """Note one thing that is wrong."""
        self.problems.append(Problem(summary, detail, hint, self.where(place)))

    def fresh(self) -> "Source":
        """Return the same text with nothing found in it yet."""
        return Source(self.file, self.lines)
