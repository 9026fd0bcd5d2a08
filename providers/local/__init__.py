"""Hosts as processes on this machine: real Monarch workers that listen on loopback and survive the command.

Each host is a directory beside the job file, and the process that holds the lock in it is the host.  It costs
nothing and needs no account, so a job file can be tried here before it is sent to machines that cost money.
"""

from typing import ClassVar

from monarch_infra.providers.local import hosts, reach, site
from monarch_infra.providers.local.options import Options as LocalOptions


class Local:
    """The provider `local`; the verbs are functions of its modules."""

    Options = LocalOptions
    ignores: ClassVar[frozenset[str]] = frozenset(
        {
            "resources.accelerators",
            "resources.gpus",
            "resources.cpus",
            "resources.memory",
            "resources.disk",
            "resources.instance_type",
            "resources.fabric",
        }
    )
    is_free: ClassVar[bool] = True

    check = staticmethod(hosts.check)
    diff = staticmethod(hosts.diff)
    preflight = staticmethod(hosts.preflight)
    find = staticmethod(hosts.find)
    prepare = staticmethod(site.prepare)
    make = staticmethod(hosts.make)
    remove = staticmethod(hosts.remove)
    clear = staticmethod(site.clear)
    reach = staticmethod(reach.reach)


PROVIDER = Local()
