"""The loop that turns what is asked for into hosts, for the deployments, sites and groups of one stack.

Every verb may be killed at any instruction and run again: what a host is stands in its own tags, so each run
first looks and then finishes.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from monarch_infra import provider as catalogue
from monarch_infra import trust
from monarch_infra.model import (
    Authority,
    Boot,
    Cause,
    Diff,
    Ground,
    Host,
    HostGroup,
    Json,
    MeshSpec,
    Phase,
    Refusal,
    Site,
)
from monarch_infra.problem import (
    BugError,
    CapacityError,
    CredentialsError,
    InfraError,
    NotReadyError,
    PartError,
    TimedOutError,
)
from monarch_infra.provider import Provider
from monarch_infra.reconcile import group as groups

SETTLE_S = 5.0
"""How long a create or update waits for hosts to answer.  Local processes take one second; a boot of minutes is
waited for outside the engine, so that no call of it hangs."""
POLL_S = 0.05
POLL_MAX_S = 1.0
"""The first look comes soon, for processes; each later one waits longer, for clouds."""

CAUSES: Mapping[Cause, type[InfraError]] = {
    Cause.CAPACITY: CapacityError,
    Cause.CREDENTIALS: CredentialsError,
    Cause.TIMEOUT: TimedOutError,
    Cause.FAILED: NotReadyError,
}


@dataclass(frozen=True)
class Failure:
    """Why one mesh is not what was asked for."""

    mesh: str
    error: type[InfraError]
    ranks: tuple[int, ...]
    reason: str
    is_part_kept: bool = False


class GroupFailedError(Exception):
    """A mesh failed; *group* is what stands of it and must stay in the state."""

    def __init__(self, failure: Failure, group: HostGroup) -> None:
        super().__init__(failure.reason)
        self.failure, self.group = failure, group


@dataclass(frozen=True)
class Progress:
    """How many hosts of a mesh are how far, of those this apply waits for."""

    mesh: str
    wanted: int
    phases: Mapping[Phase, int]

    @classmethod
    def of(cls, mesh: str, wanted: int, hosts: Iterable[Host]) -> "Progress":
        return cls(mesh, wanted, Counter(host.phase for host in hosts))


@dataclass
class Reconciler:
    """Makes the groups of one stack what they are asked to be."""

    home: Path
    workdir: Path
    read_known: Callable[[], frozenset[str] | None] = lambda: None
    """Reads which meshes have a group in the state; hosts of others are strays.  None where nobody can tell."""
    find_provider: Callable[[str], Provider] = catalogue.find
    on_progress: Callable[[Progress], None] = lambda progress: None
    settle_s: float = SETTLE_S
    failures: list[Failure] = field(default_factory=list)
    """Meshes that failed, in the order they did."""
    errors: list[Exception] = field(default_factory=list)
    """What else went wrong in an answer to the engine."""
    giving_up: frozenset[str] = frozenset()
    """Meshes whose hosts that do not serve yet are to be removed: their time is over."""

    def __post_init__(self) -> None:
        self._cancelled = threading.Event()
        self._is_stopped = False
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str], tuple[float, list[Host]]] = {}
        self._asked: dict[tuple[str, int], int] = {}
        self._known: frozenset[str] | None = None

    # --- the engine's rhythm ------------------------------------------------------------------------

    def begin(self) -> None:
        """Forget what was seen: a preview or an update begins."""
        if not self._is_stopped:  # the engine cancels at the end of each of its runs
            self._cancelled.clear()
        self._known = self.read_known()
        with self._lock:
            self._seen.clear()

    def cancel(self) -> None:
        """Stop waiting until the next preview or update begins.  Nothing is undone, and what exists is recorded."""
        self._cancelled.set()

    def stop(self) -> None:
        """Stop waiting for good: whoever wished it will begin nothing more."""
        self._is_stopped = True
        self._cancelled.set()

    def look(self, site: Site, *, not_before: float = 0.0) -> list[Host]:
        """Return the hosts of the deployment; one call of the provider serves all meshes that ask meanwhile.

        *not_before* is a `time.monotonic()`: an older look is not good enough.
        """
        with self._lock:
            # A target's provider may have been changed: then two sites of one deployment are looked at in one turn.
            key = site.provider, site.deployment
            if key not in self._seen or self._seen[key][0] < not_before:
                began = time.monotonic()
                self._seen[key] = began, self.find_provider(site.provider).find(site)
            return self._seen[key][1]

    # --- deployment ---------------------------------------------------------------------------------

    def new_deployment(self) -> tuple[str, str, Authority]:
        """Return a fresh id with its key and authority.  Touches nothing outside."""
        deployment = trust.new_deployment_id()
        return deployment, trust.new_key(), trust.new_authority(deployment)

    def sweep(self, site: Site) -> None:
        """Remove everything that carries the deployment's id.

        Raises:
            PartError: something could not be removed.
        """
        provider = self.find_provider(site.provider)
        for _ in range(2):  # a create that was under way when its engine died may show up once
            left = provider.find(site)
            if not left:
                break
            _remove(provider, left)
        remains = [host.provider_id for host in provider.find(site)] + provider.clear(site)
        if remains:
            raise PartError("not everything could be removed", "Still there: " + ", ".join(remains) + ".")

    # --- site ---------------------------------------------------------------------------------------

    def site(self, values: Json) -> Site:
        """Return the site that *values* describe, on this machine."""
        fields = {name: values[name] for name in ("deployment", "job", "target", "provider")}
        return Site(**fields, options=values.get("options") or {}, home=self.home, workdir=self.workdir)

    def prepare(self, site: Site) -> Ground:
        return self.find_provider(site.provider).prepare(site, Boot(site=site))

    def strays(self, site: Site) -> groups.Strays:
        """Return the hosts that no group of the state names."""
        if self._known is None:
            return {}
        found: dict[str, dict[str, str]] = {}
        for host in self.look(site):
            if host.mesh not in self._known and host.phase.is_alive:
                found.setdefault(host.mesh, {})[f"{host.rank}.{host.generation}"] = host.made_from
        return {mesh: dict(sorted(hosts.items())) for mesh, hosts in sorted(found.items())}

    def remove_strays(self, site: Site, meshes: Mapping[str, Json]) -> None:
        """Remove the hosts that no group of the state names and none of *meshes* will adopt."""
        unwanted = groups.unwanted(self.strays(site), meshes)
        _remove(
            self.find_provider(site.provider),
            [host for host in self.look(site) if f"{host.rank}.{host.generation}" in unwanted.get(host.mesh, ())],
        )

    # --- group --------------------------------------------------------------------------------------

    def diff(self, site_provider: str, old: MeshSpec, new: MeshSpec) -> Diff:
        return self.find_provider(site_provider).diff(old, new)

    def observe(self, site: Site, mesh: MeshSpec, group: HostGroup) -> HostGroup:
        """Return what stands of a group now."""
        return groups.observe(group, mesh, self._of(mesh.name, self.look(site)))

    def converge(self, site: Site, ground: Ground, old: MeshSpec | None, new: MeshSpec, group: HostGroup) -> HostGroup:
        """Make what *new* asks for of the group that was made for *old*.

        New hosts are held before old ones go.  Returns when all hosts listen, or after a moment with the rest
        named as unfinished.

        Raises:
            GroupFailedError: hosts were refused or ended; what this apply asked for is removed again, unless
                the mesh says to keep it.  It carries what stands, whatever went wrong.
        """
        try:
            return self._converge(site, ground, old, new, group)
        except GroupFailedError:
            raise
        except Exception as error:
            kind = type(error) if isinstance(error, InfraError) else BugError
            failure = Failure(
                new.name, kind, (), f"{error}" if kind is not BugError else repr(error), is_part_kept=True
            )
            raise GroupFailedError(failure, self._standing(site, new, group)) from error

    def _standing(self, site: Site, mesh: MeshSpec, group: HostGroup) -> HostGroup:
        """Return what stands of a group, as far as the provider can be asked."""
        try:
            return groups.observe(group, mesh, self._of(mesh.name, self.look(site, not_before=time.monotonic())))
        except Exception:
            return group

    def _converge(self, site: Site, ground: Ground, old: MeshSpec | None, new: MeshSpec, group: HostGroup) -> HostGroup:
        provider = self.find_provider(site.provider)
        change = provider.diff(old, new) if old is not None else Diff()
        is_remade = bool(change.restart or change.replace)
        found = self._of(new.name, self.look(site))
        # A host that is to be remade serves until its successor does.
        stays = {} if is_remade else {h.rank: h.generation for h in group.hosts if h.rank < new.hosts}
        serving = {(h.rank, h.generation) for h in group.hosts}
        goal, missing = _goal(new, found, stays, serving, group)
        made = {**{rank: host.generation for rank, host in goal.items()}, **missing}

        refused: tuple[Refusal, ...] = ()
        if new.name in self.giving_up:
            refused = _late([host for rank, host in goal.items() if rank not in stays], missing)
        elif missing:
            again = {rank: self._asked[new.name, rank] for rank in missing if (new.name, rank) in self._asked}
            if again:
                refused = (self._ended(new.name, again, found),)
            else:
                self._asked.update({(new.name, rank): generation for rank, generation in missing.items()})
                refused = _made(provider, new, missing, ground, site)
        if not refused or new.on_partial == "keep":
            failed = {rank for refusal in refused for rank in refusal.ranks}
            made = {rank: generation for rank, generation in made.items() if rank not in failed}
            found, ended = self._wait(site, new, {r: g for r, g in made.items() if stays.get(r) != g})
            refused += ended

        fresh = {(host.rank, host.generation): host for host in found}
        reached = {rank: fresh[rank, made[rank]] for rank in made if (rank, made[rank]) in fresh}
        ready = {
            rank: host
            for rank, host in reached.items()
            if stays.get(rank) == host.generation or host.phase is Phase.READY
        }
        if refused:
            kept = {(rank, made[rank]) for rank in (ready if new.name in self.giving_up else made)}
            self._fail(site, new, group, provider, refused, kept, serving)
        if len(ready) < new.hosts:
            return groups.observe(group, new, found)
        kept = {(host.rank, host.generation) for host in ready.values()}
        _remove(provider, [host for host in found if (host.rank, host.generation) not in kept])
        return HostGroup(
            hosts=groups.listed(ready.values()), generations=groups.generations(group, [*found, *ready.values()])
        )

    def remove_group(self, site: Site, mesh: str) -> None:
        """Remove every host of a mesh; none is there afterwards, or the provider raises."""
        hosts = self._of(mesh, self.look(site, not_before=time.monotonic()))
        _remove(self.find_provider(site.provider), hosts)

    def _fail(
        self,
        site: Site,
        mesh: MeshSpec,
        group: HostGroup,
        provider: Provider,
        refused: tuple[Refusal, ...],
        made: set[tuple[int, int]],
        serving: set[tuple[int, int]],
    ) -> NoReturn:
        """Undo what this apply asked for, or keep the part of it in *made*; then raise."""
        keeps = mesh.on_partial == "keep"
        found = self._of(mesh.name, self.look(site, not_before=time.monotonic()))
        kept = serving | (made if keeps else set())
        _remove(provider, [host for host in found if (host.rank, host.generation) not in kept])
        left = self._of(mesh.name, self.look(site, not_before=time.monotonic()))
        stands = groups.observe(group, mesh, left)
        part = [host for host in left if (host.rank, host.generation) in made and host.phase is Phase.READY]
        if keeps and part:
            listed = {
                host.rank: host for host in left if (host.rank, host.generation) in serving and host.phase.is_alive
            }
            listed.update({host.rank: host for host in part})
            before = group.model_copy(update={"hosts": groups.listed(listed.values())})
            stands = groups.observe(before, mesh, left)
        is_kept = keeps and any((host.rank, host.generation) in made - serving for host in left)
        ranks = tuple(sorted({rank for refusal in refused for rank in refusal.ranks}))
        error = CAUSES[refused[0].cause] if len({refusal.cause for refusal in refused}) == 1 else PartError
        failure = Failure(
            mesh=mesh.name,
            error=PartError if is_kept else error,
            ranks=ranks,
            reason="; ".join(dict.fromkeys(refusal.reason for refusal in refused)),
            is_part_kept=is_kept,
        )
        generations = groups.generations(stands, found)
        raise GroupFailedError(failure, stands.model_copy(update={"generations": generations}))

    def _wait(self, site: Site, mesh: MeshSpec, made: dict[int, int]) -> tuple[list[Host], tuple[Refusal, ...]]:
        """Look until the hosts *made* listen, one of them ended, or a moment has passed."""
        deadline = time.monotonic() + self.settle_s
        pause = POLL_S
        since = time.monotonic() if made else 0.0
        while True:
            found = self._of(mesh.name, self.look(site, not_before=since))
            mine = [host for host in found if made.get(host.rank) == host.generation]
            if made:
                with suppress(OSError, ValueError):  # who listens may have gone away; hosts are not his business
                    self.on_progress(Progress.of(mesh.name, len(made), mine))
            ended = {host.rank: host.generation for host in mine if not host.phase.is_alive}
            if ended:
                return found, (self._ended(mesh.name, ended, found),)
            if len(mine) == len(made) and all(host.phase is Phase.READY for host in mine):
                return found, ()
            if time.monotonic() >= deadline or self._cancelled.wait(pause):
                return found, ()
            since = time.monotonic()
            pause = min(pause * 1.5, POLL_MAX_S)

    def _ended(self, mesh: str, ranks: Mapping[int, int], found: Iterable[Host]) -> Refusal:
        reasons = [
            host.reason
            for host in found
            if ranks.get(host.rank) == host.generation and not host.phase.is_alive and host.reason
        ]
        return Refusal(
            ranks=tuple(sorted(ranks)),
            cause=Cause.FAILED,
            reason="; ".join(dict.fromkeys(reasons)) or "the host ended while it was starting",
        )

    @staticmethod
    def _of(mesh: str, hosts: Iterable[Host]) -> list[Host]:
        return [host for host in hosts if host.mesh == mesh]


def _goal(
    mesh: MeshSpec,
    found: list[Host],
    stays: Mapping[int, int],
    serving: set[tuple[int, int]],
    group: HostGroup,
) -> tuple[dict[int, Host], dict[int, int]]:
    """Return the hosts that fill the ranks already, and {rank: generation} of those to be made.

    A host that does not serve yet fills its rank if it was made from what is asked for now: an apply that was
    killed left it.
    """
    highest = dict(enumerate(groups.generations(group, found)))
    living: dict[int, Host] = {}
    for host in found:
        key = host.rank, host.generation
        if not host.phase.is_alive or host.rank >= mesh.hosts:
            continue
        stays_here = stays.get(host.rank) == host.generation
        is_adopted = host.rank not in stays and key not in serving and host.made_from == mesh.made_from
        if stays_here or (is_adopted and host.generation == highest.get(host.rank)):
            living[host.rank] = host
    missing = {rank: highest.get(rank, 0) + 1 for rank in range(mesh.hosts) if rank not in living}
    return living, missing


def _late(hosts: Iterable[Host], missing: Iterable[int]) -> tuple[Refusal, ...]:
    """Return the refusal of ranks whose time is over; while one still waits in a queue, capacity is what failed."""
    late = [host for host in hosts if host.phase is not Phase.READY]
    ranks = tuple(sorted({*(host.rank for host in late), *missing}))
    if not ranks:
        return ()
    queued = dict.fromkeys(host.reason for host in late if host.phase is Phase.QUEUED)
    reasons = ["not ready in time", *filter(None, queued)]
    return (Refusal(ranks=ranks, cause=Cause.CAPACITY if queued else Cause.TIMEOUT, reason=": ".join(reasons)),)


def _made(
    provider: Provider, mesh: MeshSpec, missing: Mapping[int, int], ground: Ground, site: Site
) -> tuple[Refusal, ...]:
    """Ask for hosts and return what was refused; an error is a refusal too, for part may have been made before it."""
    try:
        return provider.make(mesh, missing, ground, Boot(site=site)).refused
    except InfraError as error:
        cause = next((cause for cause, kind in CAUSES.items() if isinstance(error, kind)), Cause.FAILED)
        return (Refusal(ranks=tuple(sorted(missing)), cause=cause, reason=str(error)),)


def _remove(provider: Provider, hosts: Iterable[Host]) -> None:
    by_mesh: dict[str, list[Host]] = {}
    for host in hosts:
        by_mesh.setdefault(host.mesh, []).append(host)
    for mesh, own in sorted(by_mesh.items()):
        provider.remove(mesh, own)
