"""From the outputs of a stack to Monarch's host meshes; makes, changes and removes nothing.

Importing this loads no Monarch: `verify` refuses what cannot work before Monarch is asked, whose own answers to the
same mistakes are a minute of silence, a segmentation fault, or the end of the client process.
"""

import contextlib
import ipaddress
import socket
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from monarch_infra import versions
from monarch_infra.model import ListedHost, Outputs, PingAnswer, ranges
from monarch_infra.problem import NotFoundError, NotReadyError, UsageError

if TYPE_CHECKING:
    from monarch_infra.connect.adapter import JobState

PROBE_S = 2.0
"""A live host accepts within one round trip; 2 s forgive a lost packet."""
PROBED_AT_ONCE = 64
"""Threads that wait for a TCP handshake: 512 dead hosts are told in 16 s, live ones at once."""
PING_TIMEOUT_S = 60.0
"""Spawning a proc took 5 s for 16 procs on two cores; a host that imports from a network disk takes longer."""
STEP_S = 0.1
"""How often a wait for Monarch looks whether it has reported a fault."""
STOP_S = 30.0
"""Stopping procs takes 0.6 s for two hosts; what does not stop by then is left to Monarch's own clean-up."""


def verify(outputs: Outputs, meshes: Iterable[str] | None = None) -> None:
    """Raise if this process cannot talk to the workers of *outputs*, or one of them does not answer.

    Raises:
        NotFoundError: there is no such mesh.
        NotReadyError: another Monarch or Python than ours, a rank without a worker, a worker that does not answer.
    """
    _verify_versions(outputs)
    _verify_way(outputs)
    _verify_workers(outputs, _named(outputs, meshes))


def connect(outputs: Outputs) -> "JobState":
    """Return the host meshes of *outputs*, verified.

    A HostMesh returned by this has not exchanged a message with its workers; `mesh.initialized.get(timeout=…)` waits
    for that.
    """
    verify(outputs)
    return _attached(outputs, outputs.meshes)


def ping(
    outputs: Outputs, meshes: Iterable[str] | None = None, *, timeout_s: float = PING_TIMEOUT_S
) -> list[PingAnswer]:
    """Make one real actor call to every rank of *meshes* (default: all) and return the answers, by mesh and rank.

    What it starts on the hosts for that is stopped again.  Runs in this process, which listens for the answers: call
    it before the process talks to Monarch in another way, or not at all.

    Raises:
        NotReadyError: as `verify`; or a worker answers to another identity than the outputs say, or not in time.
    """
    names = _named(outputs, meshes)
    _verify_versions(outputs)
    _verify_way(outputs)
    _verify_workers(outputs, names)

    from monarch_infra.connect import adapter

    state = _attached(outputs, names)
    told: list[str] = []
    until = time.monotonic() + timeout_s
    with adapter.faults_told(told.append):
        spawned = {name: adapter.spawn_pingers(state[name]) for name in names}
        try:
            calls = {name: actors.answer.call() for name, (_, actors) in spawned.items()}
            answers: list[PingAnswer] = []
            for name in names:
                by_index = {point["hosts"]: said for point, said in _awaited(calls[name], name, until, told)}
                for index, host in enumerate(outputs.meshes[name].hosts):
                    again = time.perf_counter()
                    _awaited(spawned[name][1].slice(hosts=index).answer.call_one(), name, until, told)
                    rtt_ms = round((time.perf_counter() - again) * 1000, 1)
                    answers.append(
                        PingAnswer(
                            mesh=name, rank=host.rank, generation=host.generation, rtt_ms=rtt_ms, **by_index[index]
                        )
                    )
        finally:
            # A client that lives for less than 10 s and does not stop its procs leaves them behind for ever.
            stops = [procs.stop() for procs, _ in spawned.values()]
            patience_s = STEP_S if told else STOP_S
            for stop in stops:
                with contextlib.suppress(Exception):
                    stop.get(timeout=patience_s)
    return answers


def answering(hosts: Iterable[ListedHost]) -> list[bool]:
    """Return for each host whether its worker accepts a connection.  Harmless to the worker."""
    asked = list(hosts)
    if not asked:
        return []
    with ThreadPoolExecutor(max_workers=min(PROBED_AT_ONCE, len(asked))) as pool:
        return list(pool.map(_answers, asked))


def _named(outputs: Outputs, meshes: Iterable[str] | None) -> list[str]:
    names = sorted(outputs.meshes) if meshes is None else list(meshes)
    for name in names:
        if name not in outputs.meshes:
            raise NotFoundError("no such mesh", f"`{name}` is no mesh of this job; there is {_listed(outputs.meshes)}.")
    return names


def _verify_versions(outputs: Outputs) -> None:
    here = versions.client()
    for what, theirs, ours, package in (
        ("Monarch", outputs.monarch_version, here["monarch"], f"pip install torchmonarch=={outputs.monarch_version}"),
        ("Python", outputs.python, here["python"], f"run this with Python {outputs.python}"),
    ):
        if theirs != ours:
            raise NotReadyError(
                f"{what} versions differ",
                f"The hosts run {what} {theirs}, this process runs {ours}; the two cannot talk to each other.",
                hint=f"{package}, or apply again from here to restart the hosts with {ours}",
            )


def _verify_way(outputs: Outputs) -> None:
    for built, what in ((outputs.transport == "tcp", "transport `tls`"), (outputs.gateway is None, "a gateway")):
        if not built:
            raise UsageError("not built yet", f"These hosts are reached by {what}, which this release does not speak.")


def _verify_workers(outputs: Outputs, names: Iterable[str]) -> None:
    """Raise if a rank has no worker or its worker does not answer: Monarch waits a minute for it without a word."""
    silent: list[str] = []
    listed = [(name, host) for name in names for host in outputs.meshes[name].hosts]
    answers = answering(host for _, host in listed)
    for name in names:
        there = {host.rank for (mesh, host), answer in zip(listed, answers, strict=True) if mesh == name and answer}
        known = {host.rank for host in outputs.meshes[name].hosts}
        # A HostMesh counts its hosts from 0: with a hole, every rank after it would be another host's.
        expected = set(range(max(known) + 1)) if known else {0}
        if missing := expected - there:
            silent.append(f"{name}[{ranges(missing)}]")
    if silent:
        raise NotReadyError(
            "hosts do not answer",
            f"No Monarch worker answers at {_listed(silent, quote='')}.",
            hint="plan shows hosts that are lost, apply makes them again",
        )


def _attached(outputs: Outputs, names: Iterable[str]) -> "JobState":
    from monarch_infra.connect import adapter

    adapter.use_transport(f"tcp://{_own_address(outputs)}:0")
    return adapter.JobState({name: adapter.attach(name, _workers(outputs.meshes[name].hosts)) for name in names})


def _workers(hosts: Iterable[ListedHost]) -> list[str]:
    return [f"{host.worker.proc_id}@{host.worker.address}" for host in hosts if host.worker]


def _own_address(outputs: Outputs) -> str:
    """Return the address of this machine that workers dial back to: the one that leads to them."""
    for mesh in outputs.meshes.values():
        for host in mesh.hosts:
            if host.worker is None:
                continue
            address = _endpoint(host.worker.address)
            with contextlib.suppress(ValueError):
                if ipaddress.ip_address(address[0]).is_loopback:
                    continue
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(address)  # sends nothing: it only asks the routing table
                return str(probe.getsockname()[0])
    return "127.0.0.1"


def _answers(host: ListedHost) -> bool:
    if host.worker is None:
        return False
    try:
        with socket.create_connection(_endpoint(host.worker.address), timeout=PROBE_S):
            return True
    except OSError:
        return False


def _endpoint(url: str) -> tuple[str, int]:
    """Return host and port of `tcp://host:port`."""
    host, _, port = url.partition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)


def _awaited(future: Any, mesh: str, until: float, told: list[str]) -> Any:
    """Return the result of *future*; raise as soon as Monarch has reported a fault, which *future* never hears of."""
    why = ""
    try:
        while not why:
            with contextlib.suppress(TimeoutError):
                return future.get(timeout=STEP_S)
            if told:
                why = "its workers are not those of the outputs"
            elif time.monotonic() >= until:
                why = "it did not answer in time"
    except Exception as error:  # Monarch raises what happened on the host, of any type
        why = (str(error).strip().splitlines() or [repr(error)])[-1]
    raise NotReadyError(
        "hosts do not answer",
        f"A call to mesh `{mesh}` failed: {why}.",
        hint="plan shows what became of its hosts",
    )


def _listed(names: Iterable[str], quote: str = "`") -> str:
    return ", ".join(f"{quote}{name}{quote}" for name in names) or "none"
