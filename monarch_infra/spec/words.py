"""What an annotation of a record takes, and what a file gives instead, in words.

Messages and docs both speak from here, so they say the same.  Checks nothing and knows no setting by name.
"""

import difflib
import enum
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from monarch_infra.spec.form import Later, NotBuilt, Words
from monarch_infra.spec.node import List, Map, Node

SHOWN_MAX = 40
"""How much of a found text a message repeats."""


class Limits(NamedTuple):
    """What the annotations of a value say beyond its type."""

    words: Words | None = None
    later: Later | None = None
    is_planned: bool = False
    pattern: str | None = None
    lowest: float | None = None
    above: float | None = None
    highest: float | None = None
    below: float | None = None
    shortest: int | None = None
    longest: int | None = None


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def remembered(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Remember what *function* returned; an annotation that has no hash is asked about again."""
    known = cache(function)

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return known(*args, **kwargs)  # type: ignore[arg-type]  # a TypeError tells what has no hash
        except TypeError:
            return function(*args, **kwargs)

    return call


@cache
def settings(record: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the settings of *record* by the name that a file gives them."""
    return {field.alias or name: field for name, field in record.model_fields.items()}


def near(name: str, known: Iterable[str]) -> str:
    """Return a hint if *name* is a misspelling of one of *known*, else nothing."""
    found = difflib.get_close_matches(name[:64], list(known), n=1) or [
        each for each in known if each.lower() == name.lower()
    ]
    return f"did you mean `{found[0]}`?" if found else ""


def shown(text: str) -> str:
    """Return *text* for a message: on one line, and not all of it."""
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"


def found(node: Node) -> str:
    """Return what *node* is, in words."""
    if isinstance(node, Map):
        return "a map"
    if isinstance(node, List):
        return "a list"
    if node.value is None:
        return "nothing"
    if isinstance(node.value, bool):
        return f"`{node.text}`"
    if isinstance(node.value, str):
        return f"the text `{shown(node.value)}`" if node.value.strip() else "empty text"
    return f"the number `{node.text}`"


@remembered
def limits(metadata: tuple[Any, ...]) -> Limits:
    """Return what *metadata* says; whatever has an attribute of that name counts, as it does for pydantic."""

    def first(name: str) -> Any:
        values = (getattr(each, name, None) for each in metadata)
        return next((value for value in values if value is not None), None)

    metadata = tuple(_flat(metadata))
    return Limits(
        words=next((each for each in metadata if isinstance(each, Words)), None),
        later=next((each for each in metadata if isinstance(each, Later)), None),
        is_planned=any(isinstance(each, NotBuilt) for each in metadata),
        pattern=first("pattern"),
        lowest=first("ge"),
        above=first("gt"),
        highest=first("le"),
        below=first("lt"),
        shortest=first("min_length"),
        longest=first("max_length"),
    )


def _flat(metadata: Iterable[Any]) -> Iterable[Any]:
    for each in metadata:
        if isinstance(each, FieldInfo):
            yield from each.metadata
        else:
            yield each


@remembered
def parts(annotation: Any, metadata: tuple[Any, ...] = ()) -> tuple[Any, tuple[Any, ...]]:
    """Return *annotation* without `Annotated`, and all that stood in it."""
    while get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        metadata += tuple(more)
    return annotation, metadata


@remembered
def choices(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union without None; of any other type, the type."""
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(each for each in get_args(annotation) if each is not type(None))
    return (annotation,)


@remembered
def kinds_of(annotation: Any) -> frozenset[str]:
    """Return which kinds of YAML value *annotation* takes: map, list, text, integer, number, bool."""
    annotation, _ = parts(annotation)
    members = choices(annotation)
    if len(members) > 1:
        return frozenset[str]().union(*(kinds_of(each) for each in members))
    annotation, _ = parts(members[0])
    origin = get_origin(annotation) or annotation
    if origin is Literal:
        return frozenset(_kind_of(value) for value in get_args(annotation))
    if isinstance(origin, type):
        if issubclass(origin, enum.Enum):
            return frozenset(_kind_of(each.value) for each in origin)
        if issubclass(origin, (BaseModel, Mapping)):
            return frozenset({"map"})
        if issubclass(origin, (str, Path)):
            return frozenset({"text"})
        if issubclass(origin, bool):
            return frozenset({"bool"})
        if issubclass(origin, int):
            return frozenset({"integer"})
        if issubclass(origin, float):
            return frozenset({"integer", "number"})
        if issubclass(origin, Collection):
            return frozenset({"list"})
    return frozenset({"map", "list", "text", "integer", "number", "bool"})


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "integer" if isinstance(value, int) else "number" if isinstance(value, float) else "text"


def kind(node: Node) -> str:
    """Return what kind of YAML value *node* is; empty for null."""
    if isinstance(node, Map):
        return "map"
    if isinstance(node, List):
        return "list"
    return "" if node.value is None else _kind_of(node.value)


def needs(annotation: Any, metadata: tuple[Any, ...] = ()) -> str:
    """Return what *annotation* takes, in words: `a whole number from 1 to 4096`."""
    annotation, metadata = parts(annotation, metadata)
    members = choices(annotation)
    if len(members) > 1:
        return " or ".join(needs(each) for each in members)
    annotation, metadata = parts(members[0], metadata)
    rule = limits(metadata)
    if rule.words is not None:
        return rule.words.needs
    origin = get_origin(annotation) or annotation
    if origin is Literal:
        return listed(get_args(annotation))
    if isinstance(origin, type) and issubclass(origin, enum.Enum):
        return listed(each.value for each in origin)
    kinds = kinds_of(annotation)
    if kinds == {"integer"}:
        return "a whole number" + _span(rule)
    if kinds == {"integer", "number"}:
        return "a number" + _span(rule)
    if kinds == {"map"}:
        inside = get_args(annotation)
        return "a map of texts" if len(inside) == 2 and kinds_of(inside[1]) == {"text"} else "a map"
    words = {"text": "text", "bool": "`true` or `false`", "list": "a list"}
    return words[next(iter(kinds))] if len(kinds) == 1 else "a value"


def listed(values: Iterable[Any]) -> str:
    """Return *values* as they stand in a file: `a`, `b` or `c`."""
    texts = [f"`{value}`" if not isinstance(value, bool) else f"`{str(value).lower()}`" for value in values]
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " or " + texts[-1] if texts else "nothing"


def _span(rule: Limits) -> str:
    if rule.lowest is not None and rule.highest is not None:
        return f" from {rule.lowest} to {rule.highest}"
    ends = (
        ("of at least", rule.lowest),
        ("above", rule.above),
        ("of at most", rule.highest),
        ("below", rule.below),
    )
    said = [f"{word} {end}" for word, end in ends if end is not None]
    return " " + " and ".join(said) if said else ""
