"""What a group of hosts is, what it should be, and the ranks in which the two differ.

Pure: it reads nothing but its arguments, so a plan made of it can be made again and compared.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from monarch_infra.model import (
    Diff,
    Host,
    HostGroup,
    Json,
    ListedHost,
    MeshSpec,
    Phase,
    Reason,
    UnfinishedHost,
)

POLICIES = ("on_partial", "on_loss", "labels")
"""Settings of a mesh that stand in the state and touch no host unless its provider says so."""


Strays: TypeAlias = Mapping[str, Mapping[str, str]]
"""Mesh -> `rank.generation` -> what the host was made from, of hosts that no group of the state names."""


@dataclass(frozen=True)
class Decision:
    """The ranks that an update of one group will touch, and why."""

    made: frozenset[int] = frozenset()
    """The mesh grows by them."""
    lost: frozenset[int] = frozenset()
    """They served and do not any more; their host is made anew."""
    finished: frozenset[int] = frozenset()
    """Their host is on its way and only has to be waited for."""
    restarted: frozenset[int] = frozenset()
    replaced: frozenset[int] = frozenset()
    changed: frozenset[int] = frozenset()
    removed: frozenset[int] = frozenset()
    reasons: tuple[Reason, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.touched or self.reasons)

    @property
    def touched(self) -> dict[str, frozenset[int]]:
        """Return the kinds of work with the ranks they touch, without the empty ones."""
        kinds = ("made", "lost", "finished", "restarted", "replaced", "changed", "removed")
        return {kind: ranks for kind in kinds if (ranks := getattr(self, kind))}


def decide(old: MeshSpec, new: MeshSpec, group: HostGroup, change: Diff) -> Decision:
    """Return what turns *group*, made for *old*, into what *new* asks for.

    *change* is the provider's judgement of the settings that differ.
    """
    wanted = frozenset(range(new.hosts))
    serving = group.ranks & wanted
    missing = wanted - group.ranks
    on_their_way = {host.rank: host for host in group.unfinished if host.phase is not None and host.phase.is_alive}
    coming = set(on_their_way)
    outdated = {rank for rank, host in on_their_way.items() if host.made_from != new.made_from} & missing
    served = {host.rank for host in group.unfinished if host.phase is Phase.ENDED}
    surplus = {int(host.partition(".")[0]) for host in group.surplus}
    is_remade = bool(change.restart or change.replace)

    settings = [*change.restart, *change.replace]
    judged = {reason.path.partition(".")[0] for reason in settings}
    settings.extend(reason for reason in _policies(old, new) if reason.path not in judged)
    count = [Reason(path="hosts", old=old.hosts, new=new.hosts)] if old.hosts != new.hosts else []

    return Decision(
        made=missing - coming - served,
        lost=(missing - coming) & served,
        finished=(missing & coming) - outdated,
        restarted=serving if change.restart and not change.replace else frozenset(),
        replaced=(serving if change.replace else frozenset()) | outdated,
        changed=serving if settings and not is_remade else frozenset(),
        removed=(group.ranks | coming | surplus) - wanted | (frozenset() if is_remade else surplus & serving),
        reasons=(*count, *settings),
    )


def _policies(old: MeshSpec, new: MeshSpec) -> Iterable[Reason]:
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    for name in POLICIES:
        if isinstance(before[name], dict):
            for key in sorted({*before[name], *after[name]}):
                if before[name].get(key) != after[name].get(key):
                    yield Reason(path=f"{name}.{key}", old=before[name].get(key), new=after[name].get(key))
        elif before[name] != after[name]:
            yield Reason(path=name, old=before[name], new=after[name])


def unwanted(strays: Strays, meshes: Mapping[str, Json]) -> dict[str, list[str]]:
    """Return mesh -> `rank.generation` of the strays that none of *meshes* will adopt.

    *meshes* is what the job file asks for: name -> `hosts` and `made_from`.  A mesh adopts, at each of its ranks, the
    newest host that was made from what it asks for.
    """
    found = {}
    for mesh, hosts in strays.items():
        asked = meshes.get(mesh, {"hosts": 0, "made_from": ""})
        newest: dict[int, int] = {}
        for rank, generation in map(_place, hosts):
            newest[rank] = max(newest.get(rank, 0), generation)
        adopted = {
            f"{rank}.{generation}"
            for rank, generation in newest.items()
            if rank < asked["hosts"] and hosts[f"{rank}.{generation}"] == asked["made_from"]
        }
        if over := sorted(set(hosts) - adopted, key=_place):
            found[mesh] = over
    return found


def _place(host: str) -> tuple[int, int]:
    rank, generation = host.split(".")
    return int(rank), int(generation)


def observe(group: HostGroup, mesh: MeshSpec, found: Iterable[Host]) -> HostGroup:
    """Return *group* as it stands in the world: a host is listed only if it was and still lives.

    A host that became ready by itself stays unlisted: the next apply looks at it and lists it.
    """
    hosts = list(found)
    living = {(host.rank, host.generation): host for host in hosts if host.phase.is_alive}
    listed = [
        _listed(living[host.rank, host.generation]) for host in group.hosts if (host.rank, host.generation) in living
    ]
    ranks = {host.rank for host in listed}
    unfinished = [_unfinished(rank, group, hosts) for rank in range(mesh.hosts) if rank not in ranks]
    spoken_for = {(host.rank, host.generation) for host in listed}
    spoken_for |= {(host.rank, host.generation) for host in unfinished}
    return HostGroup(
        hosts=tuple(listed),
        unfinished=tuple(unfinished),
        surplus=tuple(f"{rank}.{generation}" for rank, generation in sorted(set(living) - spoken_for)),
        generations=generations(group, hosts),
    )


def generations(group: HostGroup, hosts: Iterable[Host]) -> tuple[int, ...]:
    """Return, by rank, the highest generation ever seen."""
    highest = dict(enumerate(group.generations))
    for host in hosts:
        highest[host.rank] = max(highest.get(host.rank, 0), host.generation)
    return tuple(highest.get(rank, 0) for rank in range(max(highest, default=-1) + 1))


def _unfinished(rank: int, group: HostGroup, hosts: Iterable[Host]) -> UnfinishedHost:
    """Say what stands for a rank that does not serve: a host on its way, how the one that served ended, or nothing.

    How it ended is remembered until the rank serves again, so that its re-making reads as a replacement.
    """
    own = sorted((host for host in hosts if host.rank == rank), key=lambda host: (host.phase.is_alive, host.generation))
    newest = own[-1] if own else None
    if newest is not None and newest.phase.is_alive:
        # A host that listens by now is still only on its way: nobody has looked at it under the lock.
        phase = Phase.BOOTING if newest.phase is Phase.READY else newest.phase
        return UnfinishedHost(
            rank=rank,
            generation=newest.generation,
            phase=phase,
            reason=newest.reason,
            made_from=newest.made_from,
        )
    served = next((host for host in group.hosts if host.rank == rank), None)
    if served is not None:
        reason = newest.reason if newest is not None and newest.generation == served.generation else ""
        return UnfinishedHost(rank=rank, generation=served.generation, phase=Phase.ENDED, reason=reason or "gone")
    before = next((host for host in group.unfinished if host.rank == rank), None)
    if before is not None and before.phase is Phase.ENDED:
        return before
    return UnfinishedHost(rank=rank)


def _listed(host: Host) -> ListedHost:
    return ListedHost(rank=host.rank, generation=host.generation, provider_id=host.provider_id, worker=host.worker)


def listed(hosts: Iterable[Host]) -> tuple[ListedHost, ...]:
    """Return the lines of the outputs for *hosts*, in rank order."""
    return tuple(sorted((_listed(host) for host in hosts), key=lambda host: host.rank))


def encode(group: HostGroup) -> dict[str, Any]:
    """Return *group* as the outputs of its resource.

    The hosts are one JSON text: as 1,024 maps they cost the engine and its SDK two seconds in every plan.
    """
    values = group.plain()
    hosts = values.pop("hosts", [])
    return {"members": json.dumps(hosts, separators=(",", ":")), "unfinished": [], "surplus": [], **values}


def parse(outputs: Json) -> HostGroup:
    """Return the group that `encode` wrote; what the resource carries besides is left out."""
    values = {name: outputs[name] for name in ("unfinished", "surplus", "generations") if outputs.get(name)}
    return HostGroup.model_validate({**values, "hosts": json.loads(outputs.get("members") or "[]")})
