"""Values as the engine carries them, there and back."""

from typing import Any

import pytest
from google.protobuf import struct_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch_infra.plugin.values import SECRET, SIGNATURE, UNKNOWN, to_plain, to_struct

FUZZ = settings(max_examples=60, deadline=None)  # a deadline would fail on a busy machine

WHOLE_MAX = 1 << 53
"""Numbers are doubles on the way."""
TEXT = st.text().filter(lambda text: text != SIGNATURE)
NUMBERS = st.integers(-WHOLE_MAX, WHOLE_MAX) | st.floats(allow_nan=False).filter(lambda x: not x.is_integer())
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@FUZZ
@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_values_come_back_as_they_went(values: dict[str, Any]) -> None:
    """Kinds too: a truth is no number, nothing is no empty text, an empty list no empty map."""
    again = to_plain(struct_pb2.Struct.FromString(to_struct(values).SerializeToString()))

    assert _kinds(again) == _kinds(values)


@FUZZ
@given(st.dictionaries(TEXT, VALUES, min_size=1, max_size=3))
def test_a_secret_comes_back_unwrapped(values: dict[str, Any]) -> None:
    """Who makes hosts needs it plain; only the engine sees it wrapped."""
    struct = to_struct(values, secret=values)

    assert to_plain(struct) == values
    for name in values:
        assert struct.fields[name].struct_value.fields[SIGNATURE].string_value == SECRET


@pytest.mark.parametrize(
    ("value", "kind"), [(2, int), (2.0, int), (2.5, float), (True, bool), ("2", str), (None, type(None)), ((1,), list)]
)
def test_whole_numbers_are_ints(value: Any, kind: type) -> None:
    """A count that came back as 2.0 would differ from the file's 2 in every plan."""
    assert type(to_plain(to_struct({"a": value}))["a"]) is kind


def test_a_truth_is_not_a_number() -> None:
    """Python thinks that it is one."""
    assert to_struct({"a": True}).fields["a"].WhichOneof("kind") == "bool_value"


def test_what_is_unknown_stays_bare() -> None:
    """A secret that is known only after apply is marked as unknown; wrapped, the engine would take it for a value."""
    assert to_struct({"key": UNKNOWN}, secret=["key"]).fields["key"].string_value == UNKNOWN


def test_only_what_is_named_is_secret() -> None:
    """The rest can be read in a state and a plan."""
    struct = to_struct({"key": "k", "zone": "a"}, secret=["key"])

    assert struct.fields["zone"].string_value == "a"


def test_a_map_of_another_signature_is_a_map() -> None:
    """The engine marks other things than secrets with the same key."""
    other = {SIGNATURE: "c44067f5952c0a294b673a41bacd8c17", "path": "x"}

    assert to_plain(to_struct({"asset": other})) == {"asset": other}


def test_a_secret_deep_inside_is_unwrapped_too() -> None:
    """Inputs of the job's own may hold one anywhere."""
    wrapped = {SIGNATURE: SECRET, "value": {"deep": [1]}}

    assert to_plain(to_struct({"a": [{"b": wrapped}]})) == {"a": [{"b": {"deep": [1]}}]}


def _kinds(value: Any) -> Any:
    """Return *value* with the kind of each part beside it, for to Python `True == 1`."""
    if isinstance(value, dict):
        return {name: _kinds(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_kinds(item) for item in value]
    return type(value), value
