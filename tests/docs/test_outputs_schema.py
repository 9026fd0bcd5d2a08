"""`docs/outputs.schema.json` is the schema of what a stack exports; programs in other languages read it."""

import json
from collections.abc import Callable
from pathlib import Path

from monarch_infra.model import Outputs

FILE = Path(__file__).parents[2] / "docs" / "outputs.schema.json"


def test_the_schema_is_current(golden: Callable[[Path, str], None]) -> None:
    """It is made from the record; `pytest tests/docs --accept` writes it anew."""
    golden(FILE, json.dumps(Outputs.model_json_schema(), indent=2, ensure_ascii=False) + "\n")


def test_a_field_that_is_added_has_a_default() -> None:
    """Who reads outputs of an older stack with a newer release must be able to; within 1.x fields are only added."""
    required = set(Outputs.model_json_schema()["required"])

    assert required == {"deployment", "monarch_version", "python", "transport", "meshes"}
