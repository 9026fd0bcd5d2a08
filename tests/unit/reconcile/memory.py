"""A provider whose hosts are entries of a dictionary, and a stack of one mesh over it."""

from collections.abc import Iterable, Mapping
from typing import Any

from monarch_infra.model import Boot, Cause, Diff, Ground, Host, Made, MeshSpec, Phase, Record, Refusal, Site


class Memory:
    """Keeps the promises of a provider; a test says what its hosts do."""

    Options = Record
    ignores: frozenset[str] = frozenset()
    is_free = True

    def __init__(self) -> None:
        self.hosts: dict[tuple[str, int, int], Host] = {}
        self.calls: list[str] = []
        self.change = Diff()
        """What every change of settings means."""
        self.capacity = 1 << 30
        self.born = Phase.READY
        """How far a host is right after it was made."""
        self.fate: dict[int, Phase] = {}
        """The same for single ranks."""

    def add(self, mesh: MeshSpec, rank: int, generation: int, phase: Phase = Phase.READY, reason: str = "") -> Host:
        host = Host(
            mesh=mesh.name,
            rank=rank,
            generation=generation,
            provider_id=f"{mesh.name}-{rank}.{generation}",
            phase=phase,
            reason=reason,
            made_from=mesh.made_from,
        )
        self.hosts[mesh.name, rank, generation] = host
        return host

    def become(self, rank: int, phase: Phase, reason: str = "") -> None:
        """Let every host of a rank come to *phase*."""
        for key, host in self.hosts.items():
            if host.rank == rank:
                self.hosts[key] = host.model_copy(update={"phase": phase, "reason": reason})

    @property
    def living(self) -> list[str]:
        """Return `rank.generation` of what runs."""
        return sorted(f"{host.rank}.{host.generation}" for host in self.hosts.values() if host.phase.is_alive)

    @property
    def changing(self) -> list[str]:
        """Return the calls that change something, in order."""
        return [call for call in self.calls if not call.startswith("find")]

    def check(self, mesh: MeshSpec) -> Iterable[Any]:
        return ()

    def diff(self, old: MeshSpec, new: MeshSpec) -> Diff:
        return self.change if old.made_from != new.made_from else Diff()

    def preflight(self, site: Site, asked: Mapping[str, int]) -> Iterable[Any]:
        return ()

    def find(self, site: Site) -> list[Host]:
        self.calls.append("find")
        return list(self.hosts.values())

    def prepare(self, site: Site, boot: Boot) -> Ground:
        self.calls.append("prepare")
        return Ground()

    def make(self, mesh: MeshSpec, ranks: Mapping[int, int], ground: Ground, boot: Boot) -> Made:
        self.calls.append("make " + " ".join(f"{rank}.{generation}" for rank, generation in sorted(ranks.items())))
        made, refused = [], []
        for rank, generation in sorted(ranks.items()):
            if len(self.hosts) >= self.capacity:
                refused.append(rank)
            else:
                phase = self.fate.get(rank, self.born)
                made.append(self.add(mesh, rank, generation, phase, "" if phase.is_alive else "it burnt"))
        refusal = Refusal(ranks=tuple(refused), cause=Cause.CAPACITY, reason="full")
        return Made(hosts=tuple(made), refused=(refusal,) if refused else ())

    def remove(self, mesh: str, hosts: Iterable[Host]) -> None:
        own = list(hosts)
        self.calls.append("remove " + " ".join(sorted(f"{host.rank}.{host.generation}" for host in own)))
        for host in own:
            self.hosts.pop((mesh, host.rank, host.generation), None)

    def clear(self, site: Site) -> list[str]:
        self.calls.append("clear")
        return []

    def reach(self, host: Host, port: int) -> Any:
        raise NotImplementedError
