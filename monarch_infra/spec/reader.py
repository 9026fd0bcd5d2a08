"""A job file as a tree of values with places: the only module that reads YAML.

Its scalars are its own, because YAML 1.1 reads `no` as false, `22:22` as 1342 and `017` as 15.  A stranger's file
must be safe to read, so size, depth and what aliases expand to are limited.  It knows no setting by name.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from monarch_infra.problem import SpecError, UsageError
from monarch_infra.spec.node import TOP, Entry, List, Map, Node, Place, Scalar, Source, moved

FILE_BYTES_MAX = 1 << 20
"""A thousand meshes with every setting are 0.4 MB."""
DEPTH_MAX = 32
"""The deepest setting of ours lies at 6; the rest is room for a provider's own maps."""
NODES_MAX = 200_000
"""A thousand meshes with every setting are 40,000 values, aliases written out."""

INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
"""Eighteen digits fit 64 bits; what is longer is no number of ours and stays text."""
FLOAT = re.compile(r"-?(0|[1-9][0-9]{0,17})\.[0-9]{1,18}")
LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""What YAML counts as the end of a line, so that our line numbers are those of its parser."""
NOT_PRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
MERGE = "<<"

PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C where PyYAML has it: twenty times as fast, same events."""

NOT_YAML = "not readable as YAML"
SYNTAX = (
    (
        "mapping values are not allowed",
        "A `:` stands where no setting can begin.",
        "put text that contains `: ` in quotes, and check the indentation of this line and the one above",
    ),
    ("unexpected end of stream", "A quote is opened here and never closed.", "close the quote"),
    ("expected ',' or ']'", "A `[` is opened here and not closed, or a comma is missing in it.", "close it with `]`"),
    ("expected ',' or '}'", "A `{` is opened here and not closed, or a comma is missing in it.", "close it with `}`"),
    (
        "cannot start any token",
        "Text cannot begin with this character.",
        "put the text in quotes",
    ),
    (
        "could not find expected ':'",
        "This line is not of the form `setting: value`.",
        "write `setting: value`, or put text that goes over several lines in quotes",
    ),
    (
        "expected key",
        "This line does not belong to the map above it: it is indented differently, or its `:` is missing.",
        "indent the settings of one map alike",
    ),
    (
        "expected <block end>",
        "This line does not belong to the map or list above it: it is indented differently.",
        "indent the settings of one map alike",
    ),
    (
        "expected '-' indicator",
        "This line stands in a list but does not begin with `-`.",
        "begin it with `-`, or indent it like the setting that it belongs to",
    ),
    ("unknown escape character", "A `\\` in double quotes begins no escape that YAML knows.", "write `\\\\`"),
)
"""What the parser says -> what it means, and what to do.  C and Python word it slightly differently."""


class _UnreadableError(Exception):
    """The file cannot be read any further; the source holds the reason."""


def read(file: Path, *, parser: Any = None) -> tuple[Source, Map]:
    """Return the text of *file* and its tree; what is wrong but does not stop the reading is in the source.

    Raises:
        UsageError: there is no such file, or it may not be read.
        SpecError: it is not YAML, or not a map.
    """
    source = Source(str(file))
    try:
        text = _text(source, _bytes(file))
        return source, _Composer(source, yaml.parse(text, Loader=parser or PARSER)).document()
    except _UnreadableError:
        raise SpecError(source.problems) from None
    except yaml.MarkedYAMLError as error:
        _tell_syntax(source, error)
        raise SpecError(source.problems) from None
    except yaml.YAMLError as error:
        source.tell(TOP, NOT_YAML, f"The parser says: {error}.")
        raise SpecError(source.problems) from None


def _bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise UsageError("no such job file", f"There is no file `{file}`.", hint="monarch-infra init") from None
    except IsADirectoryError:
        hint = f"name the file in it, such as `{file / 'job.yaml'}`"
        raise UsageError("not a job file", f"`{file}` is a directory.", hint=hint) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        hint = "check the path and who may read it"
        raise UsageError("job file not readable", f"`{file}` cannot be read: {reason}.", hint=hint) from None


def _text(source: Source, content: bytes) -> str:
    def stop(at: int, summary: str, detail: str, hint: str) -> _UnreadableError:
        before = content[:at].decode("utf-8", errors="replace")
        lines = LINE_END.split(before)
        source.lines = LINE_END.split(content[: at + 200].decode("utf-8", errors="replace"))
        source.tell(Place(len(lines), len(lines[-1]) + 1), summary, detail, hint)
        return _UnreadableError()

    if len(content) > FILE_BYTES_MAX:
        raise stop(0, "job file too large", "A job file may have 1 MiB.", "keep what is no setting in files of its own")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise stop(0, "not UTF-8", "The file begins as UTF-16 does.", "save it as UTF-8 without a byte order mark")
    if content.startswith(b"\xef\xbb\xbf"):
        detail = "The file begins with a byte order mark, which no reader of job files expects."
        raise stop(0, "byte order mark", detail, "save it as UTF-8 without a byte order mark")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        detail = f"The byte 0x{content[error.start]:02x} here is no part of a UTF-8 character."
        raise stop(error.start, "not UTF-8", detail, "save the file as UTF-8") from None
    source.lines = LINE_END.split(text)
    if found := NOT_PRINTABLE.search(text):
        at = len(text[: found.start()].encode())
        detail = f"The character U+{ord(found.group()):04X} here cannot stand in a job file."
        raise stop(at, "control character", detail, "remove it")
    return text


def _tell_syntax(source: Source, error: yaml.MarkedYAMLError) -> None:
    said = error.problem or error.context or "nothing"
    mark = error.problem_mark or error.context_mark
    if error.context_mark is not None and ("end of stream" in said or "expected ','" in said):
        # Where something was opened helps more than where the file ended without closing it.
        mark = error.context_mark
    place = Place(mark.line + 1, mark.column + 1) if mark is not None else TOP
    line = source.lines[place.line - 1] if place.line <= len(source.lines) else ""
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent:
        detail = "This line is indented with a tab, which YAML does not allow."
        source.tell(Place(place.line, indent.index("\t") + 1), NOT_YAML, detail, "indent with spaces")
        return
    for needle, detail, hint in SYNTAX:
        if needle in said:
            source.tell(place, NOT_YAML, detail, hint)
            return
    source.tell(place, NOT_YAML, f"The parser says: {said}.")


class _Composer:
    """Makes the tree from the parser's events, which say where an alias stands; nodes of PyYAML do not."""

    def __init__(self, source: Source, events: Iterator[Any]) -> None:
        self._source = source
        self._events = events
        self._anchors: dict[str, Node | None] = {}
        """None while the anchored value is still being read."""
        self._count = 0

    def document(self) -> Map:
        """Return the one document of the file, which must be a map."""
        next(self._events)
        if isinstance(next(self._events), yaml.StreamEndEvent):
            raise self._stop(TOP, "empty job file", "The file says nothing.", "begin with `version: 1` and `hosts: 2`")
        root = self._node(next(self._events), 1)
        next(self._events)
        following = next(self._events)
        if not isinstance(following, yaml.StreamEndEvent):
            detail = "A second document begins here; a job file is one."
            raise self._stop(_place(following), "several documents", detail, "remove the line `---`, or use two files")
        if isinstance(root, Map):
            return root
        if isinstance(root, Scalar) and root.value is None:
            raise self._stop(
                root.place, "empty job file", "The file says nothing.", "begin with `version: 1` and `hosts: 2`"
            )
        raise self._stop(
            root.place,
            "not a map",
            f"A job file is a map of settings, but this is {'a list' if isinstance(root, List) else 'text'}.",
            "begin with `version: 1` and `hosts: 2`",
        )

    def _stop(self, place: Place, summary: str, detail: str, hint: str) -> _UnreadableError:
        self._source.tell(place, summary, detail, hint)
        return _UnreadableError()

    def _node(self, event: Any, depth: int) -> Node:
        place = _place(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, place, depth)
        self._spend(1, place)
        if depth > DEPTH_MAX:
            raise self._too_deep(place)
        if event.tag is not None:
            detail = f"The tag `{event.tag}` has no meaning in a job file."
            self._source.tell(place, "tag not allowed", detail, "remove the tag; put text in quotes")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event, place)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._list(place, depth)
        else:
            node = self._map(place, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _spend(self, nodes: int, place: Place) -> None:
        self._count += nodes
        if self._count > NODES_MAX:
            detail = f"With its aliases written out the file has more than {NODES_MAX:,} values."
            raise self._stop(place, "job file too large", detail, "use fewer aliases of large values")

    def _too_deep(self, place: Place) -> _UnreadableError:
        return self._stop(place, "nested too deep", f"Maps and lists may lie {DEPTH_MAX} deep.", "flatten this value")

    def _alias(self, event: Any, place: Place, depth: int) -> Node:
        node = self._anchors.get(event.anchor)
        if node is None:
            if event.anchor in self._anchors:
                detail, hint = f"`*{event.anchor}` stands inside the value that it names.", "write the value out"
            else:
                detail = f"No `&{event.anchor}` stands above this line."
                hint = f"mark a value with `&{event.anchor}` first, or put text that begins with `*` in quotes"
            self._source.tell(place, "alias not known", detail, hint)
            return Scalar(place, None, "")
        self._spend(node.size, place)
        if depth + node.height > DEPTH_MAX:
            raise self._too_deep(place)
        return moved(node, place)

    def _scalar(self, event: Any, place: Place) -> Scalar:
        text: str = event.value
        if not _is_text(text):
            detail = "This text holds an escape that is no character."
            raise self._stop(place, "control character", detail, "remove the escape")
        return Scalar(place, _value(text) if event.implicit[0] else text, text)

    def _list(self, place: Place, depth: int) -> List:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        size = 1 + sum(item.size for item in items)
        return List(place, tuple(items), size, 1 + max((item.height for item in items), default=0))

    def _map(self, place: Place, depth: int) -> Map:
        entries: dict[str, Entry] = {}
        merged: Node | None = None
        size, height = 1, 0
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            is_merge = isinstance(event, yaml.ScalarEvent) and event.value == MERGE and bool(event.implicit[0])
            key = self._node(event, depth + 1)
            node = self._node(next(self._events), depth + 1)
            size, height = size + 1 + node.size, max(height, node.height)
            if not isinstance(key, Scalar) or not key.text:
                self._source.tell(key.place, "key not allowed", "The name of a setting is text.", "")
            elif (is_merge and merged is not None) or key.text in entries:
                first = entries[key.text].place if key.text in entries else place
                again = f"`{key.text}` is given twice in this map: on line {first.line} and on line {key.place.line}."
                self._source.tell(key.place, "key given twice", again, "remove one of the two")
            elif is_merge:
                merged = node
            else:
                entries[key.text] = Entry(key.place, node)
        if merged is not None:
            entries = self._merged(merged) | entries
        return Map(place, entries, size, 1 + height)

    def _merged(self, node: Node) -> dict[str, Entry]:
        """Return what `<<: *a` or `<<: [*a, *b]` puts under a map; of two the first wins."""
        entries: dict[str, Entry] = {}
        for part in node.items if isinstance(node, List) else (node,):
            if isinstance(part, Map):
                for key, entry in part.entries.items():
                    entries.setdefault(key, entry)
            else:
                detail = "What `<<` lays under a map must be a map, or a list of maps."
                self._source.tell(part.place, "wrong type", detail, "name a map with `<<: *anchor`")
        return entries


def _place(event: Any) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


def _is_text(text: str) -> bool:
    """Return true if *text* can be written as UTF-8; the parser in Python lets half a surrogate pair through."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _value(text: str) -> str | int | float | bool | None:
    """Return what a scalar without quotes means."""
    if text in ("", "null"):
        return None
    if text in ("true", "false"):
        return text == "true"
    if INTEGER.fullmatch(text):
        return int(text)
    if FLOAT.fullmatch(text):
        return float(text)
    return text
