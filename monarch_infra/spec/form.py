"""Forms of text that a job file uses, and marks for what is planned.

Each is said once: the pattern checks it and stands in the JSON Schema, the words stand in messages and in the docs.
Nothing here reads a file.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetJsonSchemaHandler, StringConstraints
from pydantic.json_schema import JsonSchemaValue

from monarch_infra.model import JOB_NAME_PATTERN, MESH_NAME_MAX, MeshName

TARGET_NAME_PATTERN = r"^[a-z][a-z0-9]{0,15}$"
"""No hyphen, so that the last one of `<job>-<target>` ends the job's name: no two jobs share a stack.
Sixteen letters, so that job, target and rank fit a cloud's 63 characters."""
DURATION_PATTERN = r"^([0-9]{1,9}d)?([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?$"
QUANTITY_PATTERN = r"^[0-9]{1,15}(\.[0-9]{1,9})?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)$"
ACCELERATORS_PATTERN = r"^[A-Za-z][A-Za-z0-9._-]{0,62}:[1-9][0-9]{0,2}$"

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
DURATION_SECONDS_MAX = 30 * 86400
"""Longer than any queue we know; a longer wait is a wrong unit."""


@dataclass(frozen=True)
class Words:
    """How messages speak of a form of text."""

    needs: str
    hint: Callable[[str], str] = lambda _: ""
    """From the text that was found to what to do about it."""
    check: Callable[[str], bool] = lambda _: True
    """What the pattern cannot say."""
    summary: str = "value not allowed"
    of: str = ""
    """What the text is; empty where it is the value of a setting."""


@dataclass(frozen=True)
class NotBuilt:
    """Marks a setting that is planned: it is known, and refused."""

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"not": {}}


@dataclass(frozen=True)
class Later:
    """Marks values of a built setting that are planned."""

    choices: tuple[str, ...] = ()
    as_map: str = ""
    """How the planned map is written, where the setting will take one."""


Planned = Annotated[Any, NotBuilt()]


def seconds(duration: str) -> int:
    """Return how many seconds `12h30m` has."""
    return sum(int(count) * SECONDS[unit] for count, unit in re.findall(r"([0-9]+)([dhms])", duration))


def mesh_name(text: str) -> str:
    """Return the name allowed for a mesh that is nearest to *text*; empty where nothing remains of it."""
    return re.sub(r"[^a-z0-9]", "", text.lower()).lstrip("0123456789")[:MESH_NAME_MAX]


def job_name(text: str) -> str:
    """Return the name allowed for a job that is nearest to *text*; empty where nothing remains of it."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).lstrip("0123456789-")[:40].rstrip("-")


def _rename(nearest: str, otherwise: str) -> str:
    return f"rename it to `{nearest}`" if nearest else otherwise


def _spell_duration(text: str) -> str:
    number = re.sub(r"[^0-9]", "", text)[:9] or "10"
    if re.fullmatch(r"[0-9]+:[0-9:]+", text):
        return "write hours, minutes and seconds with their units: `1h30m`"
    return f"write `{number}m` for minutes or `{number}s` for seconds"


def _spell_quantity(text: str) -> str:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGTP]?)i?[Bb]?\+?", text.strip(), re.IGNORECASE)
    number, unit = (found[1], found[2].upper() or "G") if found else ("64", "G")
    return f"write `{number}{unit}i` for powers of 1024 or `{number}{'k' if unit == 'K' else unit}` for powers of 1000"


def _spell_accelerators(text: str) -> str:
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*", text):
        return f'say how many each host has: "{text}:1"'
    if found := re.fullmatch(r"([1-9][0-9]{0,2})[:x*]([A-Za-z][A-Za-z0-9._-]*)", text):
        return f'the type comes first: "{found[2]}:{found[1]}"'
    return 'write type and count, such as "H100:8"'


JOB_NAME = Words(
    "lower-case letters, digits and `-`, at most 40, starting with a letter",
    lambda text: _rename(job_name(text), "choose a name such as `llama-rl`"),
    summary="job name not allowed",
)
MESH_NAME = Words(
    f"lower-case letters and digits, at most {MESH_NAME_MAX}, starting with a letter",
    lambda text: _rename(mesh_name(text), "choose a name such as `workers`"),
    summary="mesh name not allowed",
    of="A mesh's name becomes an attribute of Monarch's `JobState`: it",
)
TARGET_NAME = Words(
    "lower-case letters and digits, at most 16, starting with a letter",
    lambda text: _rename(mesh_name(text)[:16], "choose a name such as `prod`"),
    summary="target name not allowed",
    of="A target's name",
)

Job = Annotated[str, StringConstraints(pattern=JOB_NAME_PATTERN), JOB_NAME]
Mesh = Annotated[MeshName, MESH_NAME]
Target = Annotated[str, StringConstraints(pattern=TARGET_NAME_PATTERN), TARGET_NAME]
Duration = Annotated[
    str,
    StringConstraints(pattern=DURATION_PATTERN, min_length=1),
    Words(
        "a duration such as `12h30m` or `300s`",
        _spell_duration,
        lambda text: 0 < seconds(text) <= DURATION_SECONDS_MAX,
    ),
]
Quantity = Annotated[
    str,
    StringConstraints(pattern=QUANTITY_PATTERN),
    Words("a quantity such as `64Gi`", _spell_quantity, lambda text: bool(text.strip("0.kMGTPi"))),
]
Accelerators = Annotated[
    str,
    StringConstraints(pattern=ACCELERATORS_PATTERN),
    Words("a type and a count per host, such as `H100:8`", _spell_accelerators),
]
EnvName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=255),
    Words(
        "letters, digits and `_`, not starting with a digit",
        lambda text: _rename(re.sub(r"[^A-Za-z0-9_]", "_", text).lstrip("0123456789"), ""),
        summary="environment name not allowed",
        of="An environment variable's name",
    ),
]
EnvValue = Annotated[str, Words("text", check=lambda text: "\0" not in text)]
LabelName = Annotated[
    str,
    StringConstraints(pattern=r"^[^\s/]+(/[^\s/]+)?$", max_length=63),
    Words(
        "at most 63 characters without spaces, and not one of our own `monarch-infra/…`",
        lambda _: "choose another name",
        lambda text: not text.startswith("monarch-infra/"),
        summary="label name not allowed",
        of="A label's name",
    ),
]
LabelValue = Annotated[
    str,
    StringConstraints(max_length=63),
    Words("text of at most 63 characters", lambda text: "shorten it" if len(text) > 63 else ""),
]
MachineName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"),
    Words("the name of one machine type, such as `m7i.4xlarge`"),
]
