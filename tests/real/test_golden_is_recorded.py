"""The recordings of `tests/golden` are what the engine says today."""

from pathlib import Path

import pytest

from golden import record


@pytest.mark.parametrize("case", ["first-apply", "several-at-once", "destroy-with-strays"])
def test_recording_again_gives_the_same_bytes(case: str, tmp_path: Path) -> None:
    """A recording rots when engine, plug-in or program change; then all are recorded anew and read again."""
    job, steps = record.record(case, tmp_path)

    assert job == (record.HERE / case / "job.yaml").read_text(encoding="utf-8")
    assert steps == (record.HERE / case / "steps.json").read_text(encoding="utf-8")
