"""A plan reads as a person accepted it, over previews recorded from the real engine (`record.py`)."""

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from golden import record
from monarch_infra import render, spec
from monarch_infra.model import Action, JobSpec, Plan, ranges

CASES = sorted(folder for folder in Path(__file__).parent.iterdir() if (folder / "steps.json").is_file())

LINES_MAX = 40
BYTES_MAX = 4096
"""What a person reads before he says yes fits one screen, at 16 hosts and at 1,024."""

TAKES = (Action.DELETE, Action.REPLACE)


def recorded(case: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((case / "steps.json").read_text(encoding="utf-8"))
    return values


@cache
def job_of(case: Path) -> JobSpec:
    return spec.load(case / "job.yaml", record.TARGET, **record.VERSIONS).spec


@cache
def plan_of(case: Path) -> Plan:
    return record.read(job_of(case), recorded(case))


def document(plan: Plan) -> str:
    """Return the plan's JSON with a field, and a change, in each line, so that a diff of it can be read."""
    fields = []
    for name, value in render.plan_json(plan).items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value:
            text = "[\n" + ",\n".join(f"  {json.dumps(item, ensure_ascii=False)}" for item in value) + "\n ]"
        fields.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(fields) + "\n}\n"


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Path:
    """Return the folder of a case."""
    folder: Path = request.param
    return folder


def test_it_reads_as_accepted(case: Path, golden: Callable[[Path, str], None]) -> None:
    """Text and JSON are those that a person last looked at."""
    plan = plan_of(case)

    golden(case / "plan.txt", render.plan_text(plan))
    golden(case / "plan.json", document(plan))


def test_it_fits_a_screen(case: Path) -> None:
    """A plan's length does not grow with hosts or meshes."""
    text = render.plan_text(plan_of(case))

    assert len(text.splitlines()) <= LINES_MAX
    assert len(text.encode()) <= BYTES_MAX


def test_the_same_preview_gives_the_same_bytes_in_any_order(case: Path) -> None:
    """The engine tells its steps as they happen to end; the plan does not show it."""
    plan = plan_of(case)
    values = recorded(case)
    chance = random.Random(1)
    for step in values["steps"]:
        paths = list(step.get("paths", {}).items())
        chance.shuffle(paths)
        step["paths"] = dict(paths)
    chance.shuffle(values["steps"])

    again = record.read(job_of(case), values)

    assert render.plan_text(again) == render.plan_text(plan)
    assert document(again) == document(plan)
    assert again.digest == plan.digest


def test_what_takes_something_away_is_read_first(case: Path) -> None:
    """No line that makes or changes stands before one that deletes or replaces, so none hides it."""
    plan = plan_of(case)
    actions = {action.value: action for action in Action}
    lines = render.plan_text(plan).splitlines()
    shown = [actions[line[2]] for line in lines if line[:2] == "  " and line[2] in actions and line[3:5] == "  "]
    hidden = [change.action for change in plan.changes[len(shown) :]]

    assert shown == [change.action for change in plan.changes[: len(shown)]]
    assert shown or not plan.changes
    assert all(action in TAKES for action in shown) or not any(action in TAKES for action in hidden)
    assert shown == sorted(shown, key=lambda action: action not in TAKES)


def test_the_document_says_everything(case: Path) -> None:
    """However many lines the text leaves out, the JSON names every rank that is touched."""
    plan = plan_of(case)
    said = [(c["mesh"], c["action"], c["ranks"]) for c in json.loads(document(plan))["changes"]]

    assert said == [(change.mesh, change.action.value, ranges(change.ranks)) for change in plan.changes]


def test_the_plan_survives_a_file(case: Path) -> None:
    """A plan that was written and read again is the same plan, of the same digest."""
    plan = plan_of(case)
    again = Plan.model_validate_json(plan.model_dump_json())

    assert again == plan
    assert again.digest == plan.digest


def test_every_recorded_case_is_one_that_can_be_recorded_again() -> None:
    """No folder is left of a case that `record.py` does not know, and none is missing."""
    assert [case.name for case in CASES] == sorted(record.CASES)
