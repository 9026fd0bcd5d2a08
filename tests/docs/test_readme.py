"""The README shows the job file that `init` writes; `tests/e2e/test_pages.py` types its commands."""

import re
from pathlib import Path

from monarch_infra import spec

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def without_comments(text: str) -> str:
    return "".join(line for line in re.sub(r" *#.*", "", text).splitlines(keepends=True)).lstrip()


def test_the_whole_job_file_is_the_one_that_init_writes() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)

    assert block == without_comments(spec.template()["job.yaml"])


def test_the_first_minute_begins_in_an_empty_directory_and_removes_what_it_made() -> None:
    (block,) = re.findall(r"^```console\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    typed = re.findall(r"^\$ (.*)$", block, flags=re.MULTILINE)

    assert typed.index("mkdir hello && cd hello") < typed.index("monarch-infra init")
    assert typed[-1] == "monarch-infra destroy --yes"
