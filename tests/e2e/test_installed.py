"""The wheel, as a user gets it, on every Python that Monarch has wheels for."""

import sys
from pathlib import Path

import pytest

from e2e import pythons
from e2e.shell import Shell

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"

LEAKS = """
import importlib.util, json, monarch_infra.providers, monarch_infra.stacks
print(json.dumps([importlib.util.find_spec(name) is None for name in ("providers", "stacks")]))
print(json.dumps([monarch_infra.__file__, sorted(name for name in monarch_infra.provider.names())]))
"""


def a_life(shell: Shell, minor: str) -> None:
    """init, apply, hello, ping, destroy; the hosts run the same Python as the command."""
    shell("init")
    shell("apply", "--yes")
    try:
        hello = shell.run("python", "hello.py")
        answers = shell("ping", "--json").json["hosts"]
    finally:
        shell("destroy", "--yes")

    assert hello.out == "hello from workers[0]\nhello from workers[1]\n"
    assert [(answer["rank"], answer["python"]) for answer in answers] == [(0, minor), (1, minor)]
    assert (shell.hosts(), shell.clients()) == ({}, [])


@pytest.mark.parametrize("minor", pythons.MINORS)
def test_a_life_on_each_python(minor: str, wheel: Path, tmp_path: Path) -> None:
    """C2, C17: the wheel over the locked packages runs a job from init to destroy."""
    python = Path(sys.executable) if minor == HERE else pythons.interpreter(minor)
    if python is None:
        pytest.skip(f"Python {minor} is neither on PATH nor under pyenv")
    if minor != HERE:
        python = pythons.locked(python, minor)
    folder = tmp_path / "hello"
    folder.mkdir()

    shell = Shell(folder, pythons.fresh(python, wheel, tmp_path / "env"))
    try:
        a_life(shell, minor)
    finally:
        shell.end()


def test_no_name_of_ours_leaks_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """C2: the folders at the top are packages under `monarch_infra`, never global ones; `plan` runs from the wheel."""
    shell = Shell(tmp_path, pythons.fresh(Path(sys.executable), wheel, tmp_path / "env"))
    shell.write("version: 1\nname: a\nhosts: 1\n")

    said = shell.run("python", "-c", LEAKS).out.splitlines()

    assert said[0] == "[true, true]"
    assert str(tmp_path / "env") in said[1]
    assert '"local"' in said[1]
    assert "  +  workers[0]  1 host\n" in shell("plan").out


def test_no_name_of_ours_leaks_from_a_checkout(tmp_path: Path) -> None:
    """C2: the same for the editable install that these tests run on."""
    assert Shell(tmp_path).run("python", "-c", LEAKS).out.splitlines()[0] == "[true, true]"
