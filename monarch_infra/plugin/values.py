"""Values as the engine's protocol carries them, to and from plain Python.

Written out by hand because the SDK's marshalling builds an object per value: with a thousand hosts that is what
a plan would wait for.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import struct_pb2

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What the engine reads as "known after apply"."""
SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"
"""A map with the signature key and this value wraps a secret, which stands under `value`."""


def to_plain(struct: struct_pb2.Struct) -> dict[str, Any]:
    """Return a message's fields as Python values: whole numbers as ints, secrets unwrapped."""
    return {name: _plain(value) for name, value in struct.fields.items()}


def to_struct(values: Mapping[str, Any], *, secret: Iterable[str] = ()) -> struct_pb2.Struct:
    """Return *values* as a message; those named in *secret* are sealed in the state and masked in events."""
    struct = struct_pb2.Struct()
    hidden = set(secret)
    for name, value in values.items():
        if name in hidden and value != UNKNOWN:
            value = {SIGNATURE: SECRET, "value": value}
        _set(struct.fields[name], value)
    return struct


def _plain(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return value.string_value
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    if kind == "bool_value":
        return value.bool_value
    if kind == "list_value":
        return [_plain(item) for item in value.list_value.values]
    if kind == "struct_value":
        fields = value.struct_value.fields
        if SIGNATURE in fields and fields[SIGNATURE].string_value == SECRET:
            return _plain(fields["value"])
        return {name: _plain(item) for name, item in fields.items()}
    return None


def _set(slot: struct_pb2.Value, value: Any) -> None:
    if value is None:
        slot.null_value = struct_pb2.NULL_VALUE
    elif isinstance(value, bool):
        slot.bool_value = value
    elif isinstance(value, (int, float)):
        slot.number_value = value
    elif isinstance(value, str):
        slot.string_value = value
    elif isinstance(value, Mapping):
        slot.struct_value.SetInParent()
        for name, item in value.items():
            _set(slot.struct_value.fields[name], item)
    else:
        slot.list_value.SetInParent()
        for item in value:
            _set(slot.list_value.values.add(), item)
