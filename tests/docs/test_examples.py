"""Each folder of examples is whole: a job file that loads, a page that types it; `tests/e2e` runs them."""

import re
from pathlib import Path

import pytest

from monarch_infra import spec

FOLDERS = sorted(path for path in (Path(__file__).parents[2] / "examples").iterdir() if path.is_dir())


def test_there_are_examples() -> None:
    assert FOLDERS != []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_job_file_is_right_on_every_target(folder: Path) -> None:
    assert spec.check(folder / "job.yaml").problems == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_page_names_every_file_and_ends_with_nothing_left(folder: Path) -> None:
    """A file that no command of the page uses is not part of the example, and no example leaves hosts behind."""
    page = (folder / "README.md").read_text(encoding="utf-8")
    files = {path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")}

    assert [name for name in sorted(files - {"README.md"}) if name not in page] == []
    assert re.search(r"^\$ monarch-infra destroy --yes", page, flags=re.MULTILINE)
