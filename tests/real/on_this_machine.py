"""Local hosts for the tests of this folder: made in a directory of the test's own, and ended whatever happens."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from monarch_infra.model import Boot, Host, ListedHost, Made, MeshSpec, OutputMesh, Outputs, Phase, Site
from monarch_infra.providers.local import PROVIDER, directory

DEPLOYMENT = "0123456789abcdef0123456789abcdef"

LIMIT_S = 30.0
"""A worker listens 0.4 s after its start; on a busy machine with eight at once 3 s were seen."""

Value = TypeVar("Value")


def until(value: Callable[[], Value], limit_s: float = LIMIT_S) -> Value:
    """Return *value()* as soon as it is true."""
    end = time.monotonic() + limit_s
    while not (found := value()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)
    return found


class LocalHosts:
    """The hosts of one deployment under one directory."""

    def __init__(self, root: Path, *, deployment: str = DEPLOYMENT) -> None:
        self.site = Site(
            deployment=deployment, job="test", target="local", provider="local", home=root / "home", workdir=root
        )
        self.boot = Boot(site=self.site)

    def make(self, mesh: MeshSpec, ranks: dict[int, int] | None = None) -> Made:
        ground = PROVIDER.prepare(self.site, self.boot)
        return PROVIDER.make(mesh, ranks or dict.fromkeys(range(mesh.hosts), 1), ground, self.boot)

    def find(self) -> list[Host]:
        return PROVIDER.find(self.site)

    def ready(self, count: int) -> list[Host]:
        """Return the hosts once *count* of them listen."""
        until(lambda: sum(host.phase is Phase.READY for host in self.find()) == count)
        return self.find()

    def outputs(self, **fields: Any) -> Outputs:
        """Return what a stack over the living hosts would export."""
        monarch, python = versions()
        meshes: dict[str, list[ListedHost]] = {}
        for host in self.find():
            if host.phase.is_alive:
                listed = ListedHost(
                    rank=host.rank, generation=host.generation, provider_id=host.provider_id, worker=host.worker
                )
                meshes.setdefault(host.mesh, []).append(listed)
        values: dict[str, Any] = {
            "deployment": self.site.deployment,
            "monarch_version": monarch,
            "python": python,
            "transport": "tcp",
            "meshes": {name: OutputMesh(hosts=tuple(hosts)) for name, hosts in meshes.items()},
        }
        return Outputs(**{**values, **fields})

    def end(self) -> None:
        hosts = self.find()
        for mesh in {host.mesh for host in hosts}:
            PROVIDER.remove(mesh, [host for host in hosts if host.mesh == mesh])
        assert PROVIDER.clear(self.site) == []
        assert processes(self.site.home) == []


def versions() -> tuple[str, str]:
    from monarch_infra import versions

    here = versions.client()
    return here["monarch"], here["python"]


def pid(host: Host) -> int:
    """Return the process of *host*, once it has said it."""
    said = until(lambda: directory.read(Path(host.provider_id) / directory.WORKER))
    return int(said["pid"])


def processes(path: Path) -> list[int]:
    """Return the workers that run for a host under *path*, known by their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(word.endswith("worker.py") for word in words) and any(w.startswith(str(path)) for w in words):
                found.append(int(entry.name))
    return sorted(found)


def is_alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def python(
    code: str, *arguments: object, cwd: Path | None = None, returncodes: Iterable[int] = (0,), **env: str
) -> subprocess.CompletedProcess[str]:
    """Run *code* in a Python of its own, as a client or another command would."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd or "/",  # a checkout as working directory would stand before what is installed
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **env},
    )
    assert done.returncode in returncodes, done.stderr
    return done


def answer(code: str, *arguments: object, **options: Any) -> Any:
    """Return the JSON that *code* prints as its last line."""
    done = python(code, *arguments, **options)
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
