"""The program and the plug-in as plain `pulumi` uses them.

Its Python language host cannot be had from a package registry, so the program is run for the engine by us; the
plug-in is the installed command `pulumi-resource-monarch`, which the engine finds and starts by itself.
"""

import os
import runpy
import sys
from pathlib import Path

import pytest

from monarch_infra import line
from monarch_infra.engine import install
from monarch_infra.engine.command import Command

PROGRAM = Path(__file__).parents[2] / "stacks" / "__main__.py"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> line.Job:
    file = tmp_path / "job.yaml"
    file.write_text("version: 1\nmeshes: {trainers: 2}\n")
    monkeypatch.setenv("MONARCH_INFRA_JOB", str(file))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    return line.load(file)


def test_the_program_in_stacks_makes_the_same_stack(job: line.Job) -> None:
    """What plain pulumi applies, our own plan finds complete, and our own destroy removes."""
    job.workspace.prepare()
    command = Command(install.require(), job.workspace)
    command.init()

    finished = command.run_program("up", lambda: runpy.run_path(str(PROGRAM)), flags=["--yes"])

    try:
        assert finished.code == 0, finished.output
        outputs = job.state.outputs
        assert outputs is not None
        assert [host.rank for host in outputs.meshes["trainers"].hosts] == [0, 1]
        assert line.plan(job).is_empty
    finally:
        line.apply(job, approve=lambda plan: True, asks_first=False, destroys=True)
    assert job.state.is_empty
