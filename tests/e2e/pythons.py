"""Pythons to try the product on: those of this machine, each with the locked packages, and the wheel put on top.

The locked packages of an interpreter lie beside the engine and are used again until the lock changes; the wheel goes
into an environment of the test's own, so two checkouts do not disturb each other.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from e2e.shell import TOP

MINORS = ("3.10", "3.11", "3.12", "3.13")
"""What `requires-python` promises."""

LOCK = TOP / "requirements.lock"
USABLE = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def interpreter(minor: str) -> Path | None:
    """Return a Python of this minor version that can make environments, from PATH or from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    on_path = shutil.which(f"python{minor}")
    for candidate in [*([Path(on_path)] if on_path else []), *sorted(pyenv.glob(f"{minor}.*/bin/python"))]:
        # A shim of pyenv stands on PATH also for versions that are not chosen, and fails when it is run.
        asked = subprocess.run([candidate, "-c", USABLE], capture_output=True, text=True)
        if asked.stdout.strip() == minor:
            return candidate
    return None


def locked(python: Path, minor: str) -> Path:
    """Return the Python of an environment that holds what the lock names; made once, in about a minute."""
    shared = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("MONARCH_INFRA_CACHE") or Path(shared) / "monarch-infra") / "pythons"
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    home = cache / f"{minor}-{digest}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{minor}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "whole").exists():
            for old in cache.glob(f"{minor}-*"):
                shutil.rmtree(old)
            subprocess.run([python, "-m", "venv", home], check=True)
            pip = [home / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet"]
            subprocess.run([*pip, "install", "--require-hashes", "--requirement", LOCK], check=True)
            (home / "whole").touch()
    return home / "bin" / "python"


def fresh(python: Path, wheel: Path, home: Path) -> Path:
    """Return the folder of commands of a new environment: the packages that *python* sees, and the wheel."""
    site = subprocess.run([python, "-c", SITE], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([python, "-m", "venv", "--without-pip", home], check=True)
    (own,) = home.glob("lib/python*/site-packages")
    # A path in a .pth file is searched, but the .pth files in it are not read: an editable install there stays out.
    (own / "locked.pth").write_text(f"{site}\n")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", home / "bin" / "python"]
    subprocess.run([*pip, "install", "--no-deps", "--ignore-installed", wheel], check=True)
    return home / "bin"
