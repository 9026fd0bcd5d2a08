"""Checks a tree against the records that define it, and tells what is wrong in words of our own.

Works from the annotations of any pydantic record, so that the checks cannot drift from the schema; pydantic's own
texts name no place and speak of types.  Knows no setting by name.
"""

import enum
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from monarch_infra.spec.form import Later
from monarch_infra.spec.node import Entry, List, Map, Node, Place, Scalar, Source, is_null, is_removed, plain
from monarch_infra.spec.words import (
    Limits,
    choices,
    found,
    kind,
    kinds_of,
    limits,
    listed,
    near,
    needs,
    parts,
    settings,
    shown,
)

BAD: Final = object()
"""Stands for a value that was told to be wrong."""

NOT_BUILT = "not built yet"
OUT_OF_RANGE = "value out of range"
WRONG_TYPE = "wrong type"
NOT_ALLOWED = "value not allowed"
UNKNOWN = "setting not known"
MISSING = "setting missing"

TRUE = frozenset({"yes", "on", "y", "true", "1"})
FALSE = frozenset({"no", "off", "n", "false", "0"})


class Spot(NamedTuple):
    """The setting a value belongs to."""

    name: str
    place: Place


class Walker:
    """Goes through a tree and tells its source what is wrong."""

    def __init__(
        self,
        source: Source,
        *,
        providers: Collection[str] = (),
        elsewhere: Callable[[str], str] = lambda _: "",
    ) -> None:
        self.source = source
        self._providers = frozenset(providers)
        self._elsewhere = elsewhere
        """From a setting's name to a hint where it belongs."""

    def record(self, record: type[BaseModel], node: Map, spot: Spot, *, is_partial: bool = False) -> dict[str, Any]:
        """Return the values of *node* that fit *record*; with *is_partial* nothing is missed."""
        values: dict[str, Any] = {}
        fields = settings(record)
        for key, entry in self.known(record, node, spot).entries.items():
            if key in fields and not is_null(entry.node):
                value = self.field(fields[key], entry.node, Spot(key, entry.place))
                if value is not BAD:
                    values[key] = value
        for key, field in fields.items():
            given = node.entries.get(key)
            if field.is_required() and not is_partial and (given is None or is_null(given.node)):
                if any(near(other, fields) == near(key, [key]) for other in node.entries if other not in fields):
                    continue  # It is misspelt, which has been told.
                hint = f"add `{key}: {field.examples[0]}`" if field.examples else f"add `{key}`"
                place = given.place if given is not None and not is_removed(given.node) else spot.place
                detail = f"{self._owner(record, spot)} no `{key}`, which must be given."
                self.source.tell(place, MISSING, detail, hint)
        return values

    def known(self, record: type[BaseModel], node: Map, spot: Spot) -> Map:
        """Return *node* with only the settings of *record* and providers' blocks, and tell of the others."""
        fields = settings(record)
        blocks = self._providers if getattr(record, "takes_providers", False) else frozenset[str]()
        entries: dict[str, Entry] = {}
        for key, entry in node.entries.items():
            if key in fields:
                entries[key] = entry
            elif key in blocks:
                entries[key] = entry
                if not isinstance(entry.node, Map) and not is_null(entry.node):
                    self._wrong(Spot(key, entry.place), dict[str, Any], (), entry.node)
            elif not key.startswith("x-"):
                detail = f"{self._owner(record, spot)} no setting `{shown(key)}`."
                hint = self._elsewhere(key) or near(key, [*fields, *sorted(blocks)])
                self.source.tell(entry.place, UNKNOWN, detail, hint)
        return Map(node.place, entries)

    def field(self, field: FieldInfo, node: Node, spot: Spot) -> Any:
        """Return the value of *node* as *field* takes it, or BAD."""
        return self.value(field.annotation, node, spot, tuple(field.metadata))

    def value(self, annotation: Any, node: Node, spot: Spot, metadata: tuple[Any, ...] = ()) -> Any:
        """Return the value of *node* as *annotation* takes it, or BAD."""
        annotation, metadata = parts(annotation, metadata)
        rule = limits(metadata)
        if rule.is_planned:
            return self._planned(spot, f"`{shown(spot.name)}` is planned", f"remove `{shown(spot.name)}`")
        members = choices(annotation)
        if len(members) > 1:
            # The kind of the YAML value picks one member, so that one mistake gives one message.
            fitting = [each for each in members if kind(node) in kinds_of(each)]
            if not fitting:
                return self._wrong(spot, annotation, metadata, node)
            members = tuple(fitting[:1])
        annotation, metadata = parts(members[0], metadata)
        rule = limits(metadata)
        if rule.later is not None and self._is_later(rule.later, node):
            return self._planned_value(rule.later, annotation, metadata, node, spot)
        origin = get_origin(annotation) or annotation
        if kind(node) not in kinds_of(annotation):
            return self._wrong(spot, annotation, metadata, node)
        if origin is Literal:
            return self._choice(get_args(annotation), node, spot)
        if isinstance(origin, type) and issubclass(origin, enum.Enum):
            return self._choice([each.value for each in origin], node, spot)
        if isinstance(node, Map):
            return self._map(origin, get_args(annotation), rule, node, spot)
        if isinstance(node, List):
            return self._list(origin, get_args(annotation), rule, node, spot)
        return self._scalar(annotation, metadata, rule, node, spot)

    def text(self, annotation: Any, text: str, spot: Spot) -> bool:
        """Return whether *text* fits *annotation*, and tell if not."""
        rule = limits(parts(annotation)[1])
        return self._text(rule, text, spot)

    def _text(self, rule: Limits, text: str, spot: Spot) -> bool:
        words = rule.words
        long_enough = rule.shortest is None or len(text) >= rule.shortest
        short_enough = rule.longest is None or len(text) <= rule.longest
        # `$` also matches before a last line break.
        fits = rule.pattern is None or (re.search(rule.pattern, text) is not None and not text.endswith("\n"))
        if long_enough and short_enough and fits and (words is None or words.check(text)):
            return True
        said = f"`{shown(text)}`" if text.strip() else "empty text"
        if words is None:
            self.source.tell(spot.place, NOT_ALLOWED, f"`{shown(spot.name)}` needs {_shape(rule)}, but this is {said}.")
            return False
        detail = f"{words.of or f'`{shown(spot.name)}`'} needs {words.needs}, but this is {said}."
        self.source.tell(spot.place, words.summary, detail, words.hint(text))
        return False

    def _owner(self, record: type[BaseModel], spot: Spot) -> str:
        spoken: str = getattr(record, "spoken", "")
        return spoken or f"`{shown(spot.name)}` has"

    def _is_later(self, later: Later, node: Node) -> bool:
        if isinstance(node, Map):
            return bool(later.as_map)
        return isinstance(node, Scalar) and node.value in later.choices

    def _planned_value(
        self, later: Later, annotation: Any, metadata: tuple[Any, ...], node: Node, spot: Spot
    ) -> object:
        written = later.as_map if isinstance(node, Map) else plain(node)
        hint = f"for now it takes {needs(annotation, metadata)}"
        return self._planned(Spot(spot.name, node.place), f"`{spot.name}: {written}` is planned", hint)

    def _planned(self, spot: Spot, what: str, hint: str) -> object:
        self.source.tell(spot.place, NOT_BUILT, f"{what}, but this release does not act on it.", hint)
        return BAD

    def _wrong(self, spot: Spot, annotation: Any, metadata: tuple[Any, ...], node: Node) -> object:
        # An empty value has no place of its own to point at.
        place = spot.place if isinstance(node, Scalar) and not node.text else node.place
        name = shown(spot.name)
        kinds = kinds_of(annotation)
        rule = limits(metadata)
        needed = needs(annotation, metadata)
        hint = ""
        if isinstance(node, Scalar):
            text = node.text.strip()
            if rule.words is not None and node.value is not None:
                hint = rule.words.hint(text)
            if hint:
                pass
            elif node.value is None:
                hint = f'for empty text write `{name}: ""`' if "text" in kinds else ""
            elif kinds == {"bool"} and text.lower() in TRUE | FALSE:
                hint = f"write `{name}: {'true' if text.lower() in TRUE else 'false'}`"
            elif "text" in kinds:
                hint = f'put it in quotes: `{name}: "{shown(text)}"`'
            elif "integer" in kinds and re.fullmatch(r"-?[0-9]{1,18}", text):
                hint = f"remove the quotes: `{name}: {int(text)}`"
        self.source.tell(place, WRONG_TYPE, f"`{name}` needs {needed}, but this is {found(node)}.", hint)
        return BAD

    def _choice(self, allowed: Collection[Any], node: Node, spot: Spot) -> Any:
        if isinstance(node, Scalar) and node.value in allowed:
            return node.value
        detail = f"`{shown(spot.name)}` needs {listed(allowed)}, but this is {found(node)}."
        hint = near(node.text, [str(each) for each in allowed]) if isinstance(node, Scalar) else ""
        self.source.tell(node.place, NOT_ALLOWED, detail, hint)
        return BAD

    def _map(self, origin: Any, inside: tuple[Any, ...], rule: Limits, node: Map, spot: Spot) -> Any:
        if isinstance(origin, type) and issubclass(origin, BaseModel):
            return self.record(origin, node, spot)
        if not (isinstance(origin, type) and issubclass(origin, Mapping) and len(inside) == 2):
            return plain(node)
        if not self._length_fits(sum(1 for _ in node.present()), rule, spot):
            return BAD
        values: dict[str, Any] = {}
        takes_null = any(each is type(None) for each in get_args(inside[1]))
        for key, entry in node.present():
            inner = Spot(key, entry.place)
            if not self.text(inside[0], key, inner):
                continue
            if is_null(entry.node) and takes_null:
                values[key] = None
                continue
            value = self.value(inside[1], entry.node, inner)
            if value is not BAD:
                values[key] = value
        return values

    def _list(self, origin: Any, inside: tuple[Any, ...], rule: Limits, node: List, spot: Spot) -> Any:
        if not self._length_fits(len(node.items), rule, spot):
            return BAD
        item = inside[0] if inside else Any
        values = [self.value(item, each, Spot(spot.name, each.place)) for each in node.items]
        return BAD if any(value is BAD for value in values) else values

    def _length_fits(self, length: int, rule: Limits, spot: Spot) -> bool:
        least, most = rule.shortest or 0, rule.longest
        if least <= length and (most is None or length <= most):
            return True
        needed = f"at least {least}" if length < least else f"at most {most}"
        self.source.tell(spot.place, OUT_OF_RANGE, f"`{shown(spot.name)}` takes {needed} items, but has {length}.")
        return False

    def _scalar(self, annotation: Any, metadata: tuple[Any, ...], rule: Limits, node: Scalar, spot: Spot) -> Any:
        value = node.value
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, str):
            return value if self._text(rule, value, Spot(spot.name, node.place)) else BAD
        below = (rule.lowest is not None and value < rule.lowest) or (rule.above is not None and value <= rule.above)
        above = (rule.highest is not None and value > rule.highest) or (rule.below is not None and value >= rule.below)
        if below or above:
            detail = f"`{shown(spot.name)}` needs {needs(annotation, metadata)}, but this is {found(node)}."
            self.source.tell(node.place, OUT_OF_RANGE, detail)
            return BAD
        return value


def _shape(rule: Limits) -> str:
    if rule.pattern is not None:
        return f"text of the form `{rule.pattern}`"
    if rule.shortest is not None and rule.longest is not None:
        return f"text of {rule.shortest} to {rule.longest} characters"
    return f"text of at {f'least {rule.shortest}' if rule.shortest else f'most {rule.longest}'} characters"


def validated(record: type[BaseModel], values: dict[str, Any], node: Map, spot: Spot, source: Source) -> Any:
    """Return *values* as *record*, or None after telling what the record's own checks refuse."""
    try:
        return record.model_validate(values)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            place, name = spot.place, spot.name
            inner: Node | None = node
            for step in each["loc"]:
                entry = inner.entries.get(str(step)) if isinstance(inner, Map) else None
                if entry is None:
                    break
                place, name, inner = entry.place, str(step), entry.node
                if isinstance(inner, (Scalar, List)):
                    place = inner.place
            reason = each.get("ctx", {}).get("error")
            detail = f"{reason}" if isinstance(reason, Exception) else f"`{shown(name)}` does not take this value."
            source.tell(place, NOT_ALLOWED, detail)
        return None
