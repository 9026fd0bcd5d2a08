"""A job on the files lab with two meshes, applied by the release that recorded it: job file, state, key and world.

`python -m real.golden_state` in `tests/` records it anew.  That is a decision: whoever has hosts up when he upgrades
sees what the new recording shows as a difference, so a release records beside the old, not over it.
"""

import re
import shutil
import tempfile
from pathlib import Path

from monarch_infra import versions
from real.files_lab import Lab

HERE = Path(__file__).parent
RECORDED = HERE / "0.1"
OURS = "dot-monarch-infra"
"""Its own name would be ignored by git and by everything that looks for sources."""
UNREAD = ("engine", "history", "locks", "making", ".gitignore")
"""What no later command reads of a state, and what would keep it out of git."""
PLACE = "@PLACE@"
"""Stands for the directory of the job in the paths that the files lab puts into what it records."""
CLIENT = {"@PYTHON@": versions.client()["python"], "@MONARCH@": versions.client()["monarch"]}
"""Stand for the client's versions: another Python is a change of the hosts, and not what is looked for here."""
MESHES = "{trainers: {hosts: 2, env: {A: '1'}, labels: {team: x}}, loaders: 1}"


def restore(root: Path) -> Lab:
    """Lay the recorded job out under *root*."""
    shutil.copytree(RECORDED, root)
    (root / OURS).rename(root / ".monarch-infra")
    (root / ".monarch-infra" / ".gitignore").write_text("*\n")
    (root / ".monarch-infra" / "key").chmod(0o600)
    for file in (root / ".monarch-infra").rglob("*.json*"):
        text = file.read_text().replace(PLACE, str(root))
        for name, version in CLIENT.items():
            text = text.replace(name, version)
        file.write_text(text)
    return Lab(root)


def record() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        lab = Lab(Path(scratch) / "job")
        lab.write(MESHES)
        lab.apply()
        (lab.world / "calls.log").unlink()
        shutil.rmtree(RECORDED, ignore_errors=True)
        shutil.copytree(lab.root, RECORDED, ignore=shutil.ignore_patterns(*UNREAD))
        (RECORDED / ".monarch-infra").rename(RECORDED / OURS)
        for file in (RECORDED / OURS).rglob("*.json*"):
            text = file.read_text().replace(str(lab.root), PLACE)
            for (name, version), key in zip(CLIENT.items(), ("python", "monarch|monarch_version"), strict=True):
                text = re.sub(rf'((?:{key})\\?":\\?"){re.escape(version)}', rf"\g<1>{name}", text)
            file.write_text(text)
