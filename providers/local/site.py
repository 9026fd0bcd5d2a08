"""What local hosts share: the directory they lie in, and nothing else."""

import contextlib
import os
import shutil

from monarch_infra.model import Boot, Ground, Site
from monarch_infra.providers.local import directory


def prepare(site: Site, boot: Boot) -> Ground:
    """Make the directory that the hosts' directories lie in."""
    (site.home / directory.HOSTS).mkdir(parents=True, exist_ok=True)
    return Ground()


def clear(site: Site) -> list[str]:
    """Delete what interrupted commands left behind and every directory that is empty then.

    Returns the hosts of this deployment that are still there.
    """
    left: list[str] = []
    for path in directory.gone(site.home):
        shutil.rmtree(path, ignore_errors=True)
    for path in directory.found(site.home):
        label = directory.read(path / directory.HOST)
        if label is not None and label.get("deployment") != site.deployment:
            continue
        lock = None if directory.was_started(path) else directory.take(path, wait_s=0, makes=False)
        if lock is not None:
            try:
                directory.delete(path)
            finally:
                os.close(lock)
        elif path.exists():
            left.append(f"process host {path}")
    for mesh in [*(site.home / directory.HOSTS).glob("*"), site.home / directory.HOSTS, site.home]:
        with contextlib.suppress(OSError):
            mesh.rmdir()
    return left
