"""Empty directories to type in, and jobs that stand for several tests; whatever happens, nothing runs on afterwards."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.shell import FILES_LAB, TOP, Shell

PLAIN_JOB = "version: 1\nmeshes: {workers: 2}\n"
FILES_JOB = """\
version: 1
name: stored
meshes: {workers: 2}
targets:
  prod: {provider: files}
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """An empty directory called `hello`."""
    folder = tmp_path / "hello"
    folder.mkdir()
    typed = Shell(folder)
    yield typed
    typed.end()


@pytest.fixture
def paid(tmp_path: Path) -> Shell:
    """A directory with a job whose target `prod` costs something: its hosts are files in `world/`."""
    shell = Shell(tmp_path, PYTHONPATH=str(FILES_LAB))
    shell.write(FILES_JOB)
    return shell


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Two hosts of a job called `hello`, for tests that only look."""
    folder = tmp_path_factory.mktemp("standing") / "hello"
    folder.mkdir()
    shell = Shell(folder)
    shell.write(PLAIN_JOB)
    shell("apply", "--yes")
    yield shell
    shell.end()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a user gets it, built from a copy of the checkout: a build writes where it runs."""
    folder = tmp_path_factory.mktemp("wheel")
    unwanted = shutil.ignore_patterns(".*", "build", "__pycache__", "*.egg-info", "tests")
    shutil.copytree(TOP, folder / "checkout", ignore=unwanted)
    shell = Shell(folder)
    shell.run("python", "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "./checkout")
    (built,) = (folder / "dist").glob("*.whl")
    return built
