"""Runs one Monarch worker on a host, for as long as the host lives; imports nothing of ours.

    python -u worker.py DIRECTORY SOCKET LOCK

SOCKET and LOCK are inherited descriptors: a bound socket, so that no two workers ever want one port, and the open
file `DIRECTORY/lock`.  Holding the lock is what it means to be this host.
"""

import fcntl
import json
import os
import socket
import sys


def main(arguments: list[str]) -> int:
    """Become the host of a directory, if nobody else is."""
    directory, listener, lock = arguments[0], int(arguments[1]), int(arguments[2])
    if not _is_ours(directory, lock):
        return 0
    # What the actors start must hold neither the lock nor the port: the host ends when this process does.
    os.set_inheritable(lock, False)
    os.set_inheritable(listener, False)

    with open(os.path.join(directory, "host.json"), encoding="utf-8") as file:
        proc_id = json.load(file)["proc_id"]
    bound = socket.socket(fileno=listener)
    address, port = bound.getsockname()
    bound.detach()
    _write(
        os.path.join(directory, "worker.json"),
        {"pid": os.getpid(), "address": f"tcp://{address}:{port}", "proc_id": proc_id},
    )

    # Started by path, Python looks for modules in our folder first; nothing of ours may stand before Monarch's.
    ours = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != ours]
    from monarch.actor import run_worker_loop_forever

    run_worker_loop_forever(address=f"{proc_id}@tcp://{address}:fd{listener}", ca="trust_all_connections")
    return 0


def _is_ours(directory: str, lock: int) -> bool:
    """Return true if *lock* holds the lock that lies in *directory* now, and not in one that was deleted."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(lock), os.stat(os.path.join(directory, "lock")))
    except (BlockingIOError, FileNotFoundError):
        return False


def _write(path: str, value: dict[str, object]) -> None:
    """Write *value* so that a reader sees all of it or nothing."""
    part = f"{path}.part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(part, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
