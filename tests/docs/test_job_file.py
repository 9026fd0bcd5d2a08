"""`docs/job-file.md` is true: its blocks load, and its tables are those of this release."""

import re
from pathlib import Path

import pytest

from monarch_infra import spec
from monarch_infra.model import MeshSpec, Record
from monarch_infra.problem import Problem

PAGE = Path(__file__).parents[2] / "docs" / "job-file.md"
BEGIN, END = "<!-- reference: begin -->\n", "<!-- reference: end -->\n"
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


class Here:
    """A provider without settings, so that the page is checked wherever the shipped ones are."""

    Options = Record

    def check(self, mesh: MeshSpec) -> list[Problem]:
        """Refuse nothing."""
        return []


def test_the_reference_is_current() -> None:
    """The tables are those that `spec.reference` writes; on failure, paste them between the two marks."""
    text = PAGE.read_text(encoding="utf-8")

    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == spec.reference()


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_is_a_job_file(block: str, tmp_path: Path) -> None:
    """What a reader copies loads on every target."""
    file = tmp_path / "job" / "job.yaml"
    file.parent.mkdir()
    file.write_text(block, encoding="utf-8")

    report = spec.check(file, catalogue={"local": Here()})  # type: ignore[dict-item]

    assert report.problems == []


def test_there_are_blocks() -> None:
    """The page shows job files."""
    assert len(BLOCKS) >= 3
