"""The job file described: its JSON Schema, its reference for readers, and a first one to begin with.

Made from the same records that check a file, so a description cannot say what the checks do not.
"""

import copy
import importlib.resources
import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from monarch_infra.provider import Provider
from monarch_infra.spec.file import installed
from monarch_infra.spec.jobfile import BLOCKS, JobFile, MeshBlock, TargetBlock
from monarch_infra.spec.known import PLANNED_PROVIDERS
from monarch_infra.spec.words import choices, limits, needs, parts, settings

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = "#/$defs/"
TEMPLATE = ("job.yaml", "hello.py")
OVERLAY = "InTarget"
"""Ends the name of a definition that a target's overlay uses: nothing is required in it, and null removes."""

Schema = dict[str, Any]


def template() -> dict[str, str]:
    """Return the files that a first job begins with: their names and what stands in them."""
    folder = importlib.resources.files("monarch_infra.spec") / "template"
    return {name: (folder / name).read_text(encoding="utf-8") for name in TEMPLATE}


def schema(catalogue: Mapping[str, Provider] | None = None) -> Schema:
    """Return the JSON Schema of the job file, with the settings of the providers at hand."""
    catalogue = installed() if catalogue is None else catalogue
    made: Schema = JobFile.model_json_schema()
    blocks: Schema = made["$defs"]
    for name in sorted({*catalogue, *PLANNED_PROVIDERS}):
        options = _options(name, catalogue, blocks)
        for holder in (MeshBlock, TargetBlock):
            blocks[holder.__name__]["properties"].setdefault(name, options)
    _tidied(made)
    _overlays(made)
    return {"$schema": DIALECT, **made}


def _options(name: str, catalogue: Mapping[str, Provider], blocks: Schema) -> Schema:
    if name not in catalogue:
        return {"type": "object", "description": f"Settings of the provider `{name}`, which is not built yet."}
    options = catalogue[name].Options.model_json_schema(ref_template=f"{REFERENCE}{name}.{{model}}")
    for inner, definition in options.pop("$defs", {}).items():
        blocks[f"{name}.{inner}"] = definition
    # What the target says and what the mesh says are merged before anything is missed.
    options.pop("required", None)
    options.setdefault("patternProperties", {})["^x-"] = {}
    blocks[name] = options
    return {"$ref": REFERENCE + name}


def _tidied(node: Any) -> None:
    """Refuse names that fit no pattern, as the checks do, and drop what tells a reader nothing."""
    if isinstance(node, dict):
        if isinstance(node.get("patternProperties"), dict) and "properties" not in node:
            node["additionalProperties"] = False
        if isinstance(node.get("title"), str):
            del node["title"]
        if "default" in node and (node["default"] is None or isinstance(node["default"], dict)):
            del node["default"]
        for value in node.values():
            _tidied(value)
    elif isinstance(node, list):
        for value in node:
            _tidied(value)


def _overlays(made: Schema) -> None:
    """Give targets definitions of their own, in which nothing is required and null removes."""
    blocks: Schema = made["$defs"]
    target = TargetBlock.__name__
    provider = blocks[target]["properties"]["provider"]
    blocks |= {name + OVERLAY: _overlay(block) for name, block in blocks.items() if name != target}
    blocks[target] = _overlay(blocks[target])
    blocks[target]["properties"]["provider"] = provider


def _overlay(definition: Schema) -> Schema:
    made = copy.deepcopy(definition)
    _point_at_overlays(made)
    made.pop("required", None)
    made["properties"] = {key: _or_null(value) for key, value in made.get("properties", {}).items()}
    return made


def _point_at_overlays(node: Any) -> None:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            node["$ref"] += OVERLAY
        if isinstance(node.get("patternProperties"), dict) and "properties" not in node:
            node["patternProperties"] = {key: _or_null(value) for key, value in node["patternProperties"].items()}
        for value in node.values():
            _point_at_overlays(value)
    elif isinstance(node, list):
        for value in node:
            _point_at_overlays(value)


def _or_null(value: Schema) -> Schema:
    return {"anyOf": [value, {"type": "null"}]}


def reference() -> str:
    """Return the reference of the job file in Markdown: what is built, and what is not yet."""
    planned: list[str] = []
    lines: list[str] = []
    for block in BLOCKS:
        prefix = "" if block is JobFile else f"{block.path}."
        rows = []
        for key, field in settings(block).items():
            if block is TargetBlock and key in settings(JobFile):
                continue
            rule = limits(parts(field.annotation, tuple(field.metadata))[1])
            if rule.is_planned:
                planned.append(f"- `{prefix}{key}`: {_text(field)}")
                continue
            rows.append(f"| `{key}` | {_type(field)} | {_default(field)} | {_text(field)} |")
            planned += [f"- `{prefix}{key}: {each}`" for each in _later(field)]
        title = "At the top level" if block is JobFile else f"`{block.path}`"
        lines += [f"### {title}", "", inspect.cleandoc(block.__doc__ or ""), ""]
        lines += ["| setting | takes | default | meaning |", "|-|-|-|-|", *rows, ""]
    lines += ["### Not built yet", "", "Known by name and refused as `not built yet`, never silently ignored:", ""]
    lines += sorted(planned)
    lines.append(f"- `provider:` {', '.join(f'`{name}`' for name in PLANNED_PROVIDERS)}, where it is not installed")
    return "\n".join(lines) + "\n"


def _later(field: FieldInfo) -> list[str]:
    annotation, metadata = parts(field.annotation, tuple(field.metadata))
    for member in choices(annotation):
        rule = limits(parts(member, metadata)[1])
        if rule.later is not None:
            return [*rule.later.choices, *filter(None, [rule.later.as_map])]
    return []


def _type(field: FieldInfo) -> str:
    annotation, metadata = parts(field.annotation, tuple(field.metadata))
    return needs(annotation, metadata).replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.default
    if value is None or value == {} or isinstance(value, BaseModel):
        return "none"
    return f"`{value}`"


def _text(field: FieldInfo) -> str:
    return " ".join((field.description or "").split()).replace("|", "\\|")
