"""The line: load -> compile -> preview -> read, and apply's loop of turns.

What the command, reviews and `InfraJob` call.  It joins the parts and holds apply to what was approved; it prints
nothing.  Pulumi is loaded inside the functions that need it: reading outputs never does.
"""

import importlib.metadata
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from monarch_infra import engine, render, spec
from monarch_infra import plan as planning
from monarch_infra import provider as catalogue
from monarch_infra.engine import State, Workspace
from monarch_infra.model import (
    Action,
    Applied,
    Change,
    Host,
    JobSpec,
    MeshSpec,
    Outputs,
    Phase,
    Plan,
    Reason,
    Site,
    Standing,
    StandingMesh,
    Step,
    Verdict,
    ranges,
)
from monarch_infra.problem import (
    BugError,
    CancelledError,
    CapacityError,
    InfraError,
    NotFoundError,
    PartError,
    PlanStaleError,
    Problem,
    UsageError,
)
from monarch_infra.provider import Provider
from monarch_infra.reconcile import SETTLE_S, Failure, Progress, Reconciler

if TYPE_CHECKING:
    from monarch_infra.engine.command import Finished
    from monarch_infra.engine.operations import Engine

WATCH_S = 0.2
WATCH_MAX_S = 5.0
"""Between turns we look without the lock: soon for processes, seldom for machines that boot for minutes."""


@dataclass(frozen=True)
class Hooks:
    """What stands between the line and the world; tests put their own here."""

    find_provider: Callable[[str], Provider] = catalogue.find
    interceptors: Sequence[Any] = ()
    """gRPC interceptors of the plug-in's server."""


@dataclass(frozen=True)
class Job:
    """One job file on one target, with what is kept of it on this machine."""

    file: Path
    spec: JobSpec
    workspace: Workspace
    warnings: tuple[Problem, ...] = ()

    @property
    def state(self) -> State:
        return engine.read(self.workspace)

    @property
    def provider(self) -> Provider:
        return catalogue.find(self.spec.provider)

    def command(self, verb: str, *rest: str) -> str:
        """Return a command line on this job, as a user would type it here."""
        words = ["monarch-infra", verb, *rest]
        if self.file.resolve() != Path("job.yaml").resolve():
            words.append(str(self.file))
        if self.spec.target != spec.DEFAULT_TARGET:
            words += ["--target", self.spec.target]
        return " ".join(words)

    def site(self, state: State) -> Site:
        """Return the site as it is in the state, or as it would be asked for."""
        deployment = state.deployment
        return Site(
            deployment=deployment.id if deployment else "",
            job=self.spec.name,
            target=self.spec.target,
            provider=self.spec.provider,
            options=self.spec.options,
            home=self.workspace.home,
            workdir=self.workspace.workdir,
        )


class Versions(TypedDict):
    """What the client runs, and its hosts must run too."""

    python: str
    monarch: str


def versions() -> Versions:
    """Return the client's Python minor and Monarch version."""
    return {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "monarch": importlib.metadata.version("torchmonarch"),
    }


def load(file: Path, target: str = spec.DEFAULT_TARGET) -> Job:
    """Read a job file for one target.

    Raises:
        SpecError: the file is wrong for this target.
        NotFoundError: it has no such target.
    """
    loaded = spec.load(file, target, **versions())
    return Job(file, loaded.spec, Workspace.beside(file, loaded.spec.stack), loaded.warnings)


def outputs(file: Path, target: str = spec.DEFAULT_TARGET) -> Outputs | None:
    """Return the hosts that serve, from the state; None where nothing was applied."""
    return load(file, target).state.outputs


def changed(file: Path, target: str = spec.DEFAULT_TARGET) -> list[str]:
    """Return what the job file asks for that its hosts were not made from, as `trainers.hosts 2 -> 4`."""
    return _changed(load(file, target))


def _changed(job: Job) -> list[str]:
    groups = job.state.groups
    asked = {mesh.name: mesh.inputs for mesh in job.spec.meshes}
    lines = [f"{name} is not in the job file any more" for name in sorted(set(groups) - set(asked))]
    for name, inputs in asked.items():
        if name not in groups:
            lines.append(f"{name} is new")
            continue
        was = {key: value for key, value in groups[name].inputs.items() if key in MeshSpec.model_fields}
        lines += [f"{name}.{path} {old} -> {new}" for path, old, new in _differences(was, inputs)]
    return lines


def _differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif old != new:
        yield path, old, new


# --- plan -------------------------------------------------------------------------------------------


def plan(job: Job, *, meshes: Iterable[str] = (), destroys: bool = False, hooks: Hooks = Hooks()) -> Plan:
    """Return what apply would do, or destroy.  Changes nothing and takes no lock."""
    with Session.of(job, meshes=meshes, destroys=destroys, hooks=hooks) as session:
        return session.plan()


def apply(
    job: Job,
    *,
    approve: Callable[[Plan], bool],
    asks_first: bool,
    meshes: Iterable[str] = (),
    destroys: bool = False,
    waits: bool = True,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    stop: "Stop | None" = None,
    hooks: Hooks = Hooks(),
) -> Applied:
    """Do what a plan says, once *approve* has said yes to it.

    The plan is made without the lock, for a person may think as long as he likes; what was approved is then compared
    under the lock with the plan of that moment.  Only a first apply that need not ask is planned once, under the lock.

    Raises:
        PlanStaleError: the world moved since the approval; nothing was touched.
        CancelledError: the answer was no, or *stop* was set; what was made stays.
        InfraError: hosts were refused, ended or late; the class says what to do about it.
    """
    stop = stop or Stop()
    with (
        Session.of(job, meshes=meshes, destroys=destroys, hooks=hooks, on_progress=on_progress) as session,
        stop.stopping(session),
    ):
        return session.apply(approve, asks_first=asks_first, waits=waits, stop=stop)


class Stop:
    """A wish to stop, raised once for gracefully and twice for at once."""

    def __init__(self) -> None:
        self._wished = threading.Event()
        self._session: Session | None = None

    @property
    def is_wished(self) -> bool:
        return self._wished.is_set()

    def wait(self, seconds: float) -> bool:
        return self._wished.wait(seconds)

    def now(self) -> bool:
        """Stop.  Returns False if that was wished before already, so that the caller ends at once."""
        if self._wished.is_set():
            if self._session is not None:
                self._session.engine.kill()
            return False
        self._wished.set()
        if self._session is not None:
            self._session.reconciler.cancel()
            self._session.engine.interrupt()
        return True

    @contextmanager
    def stopping(self, session: "Session") -> Iterator[None]:
        self._session = session
        try:
            yield
        finally:
            self._session = None


# --- a session --------------------------------------------------------------------------------------


@dataclass
class Session:
    """The engine, the plug-in and the reconciler over one stack, as long as one command runs."""

    job: Job
    engine: "Engine"
    reconciler: Reconciler
    program: Callable[[], None]
    targets: tuple[str, ...]
    destroys: bool

    @classmethod
    @contextmanager
    def of(
        cls,
        job: Job,
        *,
        meshes: Iterable[str] = (),
        destroys: bool = False,
        hooks: Hooks = Hooks(),
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> Iterator["Session"]:
        from monarch_infra import plugin, stacks
        from monarch_infra.engine import install
        from monarch_infra.engine.operations import Engine

        state = job.state
        chosen = _chosen(job, state, meshes)
        asked = job.spec
        if destroys:
            left = tuple(mesh for mesh in asked.meshes if chosen and mesh.name not in chosen)
            asked = asked.model_copy(update={"meshes": left})
        program = stacks.compile(asked) if not destroys or chosen else _nothing
        reconciler = Reconciler(
            home=job.workspace.home,
            workdir=job.workspace.workdir,
            read_known=lambda: frozenset(engine.read(job.workspace).groups),
            find_provider=hooks.find_provider,
            on_progress=on_progress,
            settle_s=min(SETTLE_S, job.spec.ready_timeout_s),
        )
        with plugin.serving(reconciler, hooks.interceptors) as port:
            pulumi = Engine(install.require(), job.workspace, port)
            yield cls(job, pulumi, reconciler, program, _targets(job, state, chosen), destroys)

    def plan(self) -> Plan:
        return self._read(self.engine.preview(self.program, targets=self.targets))

    def apply(self, approve: Callable[[Plan], bool], *, asks_first: bool, waits: bool, stop: "Stop") -> Applied:
        approved: Plan | None = None
        if asks_first or self.job.workspace.exists:  # an update writes the state even if it finds nothing to do
            approved = self.plan()
            self._admit(approved)
            if approved.is_empty:
                return Applied(plan=approved, outputs=self.job.state.outputs)
            if not approve(approved):
                raise CancelledError("not applied", "The plan was not approved; nothing was changed.")
        deadline = time.monotonic() + self.job.spec.ready_timeout_s
        guard = _Guard(self, approve, approved)
        is_first = True
        while True:
            finished = self._turn(guard, stop)
            if guard.plan is not None and guard.plan.is_empty and is_first:
                return Applied(plan=guard.plan, outputs=self.job.state.outputs)
            is_first = False
            self._check(finished, guard, stop)
            state = self.job.state
            unfinished = {} if self.destroys else self._unfinished(state)
            assert guard.approved is not None
            if not unfinished or not waits:
                counts = {mesh: len(ranks) for mesh, ranks in unfinished.items()}
                return Applied(plan=guard.approved, outputs=state.outputs, unfinished=counts)
            if not self._watch(state, unfinished, deadline, stop):
                self.reconciler.giving_up = frozenset(unfinished)
            if stop.is_wished:
                raise self._stopped()

    # --- one turn -----------------------------------------------------------------------------------

    def _turn(self, guard: "_Guard", stop: "Stop") -> "Finished":
        finished = self.engine.update(self.program, guard, targets=self.targets)
        if guard.error is not None:
            raise guard.error
        return finished

    def _check(self, finished: "Finished", guard: "_Guard", stop: "Stop") -> None:
        """Raise what went wrong in a turn."""
        if stop.is_wished:
            raise self._stopped()
        if self.reconciler.failures:
            raise self._failed(self.reconciler.failures)
        if self.reconciler.errors:
            first = self.reconciler.errors[0]
            if isinstance(first, InfraError):
                first.done = (*first.done, *self.standing())
                first.next_command = first.next_command or self.job.command("destroy" if self.destroys else "apply")
                raise first
            raise BugError("a provider failed unexpectedly", f"{type(first).__name__}: {first}") from first
        if finished.code != 0 and finished.refusal is None:
            raise InfraError(
                "the engine ended before its work was done",
                "\n".join(finished.errors),
                done=self.standing(),
                next_command=self.job.command("destroy" if self.destroys else "apply"),
            )

    def _read(self, steps: Iterable[Step]) -> Plan:
        state = self.job.state
        steps = list(steps)
        return planning.read(
            self.job.spec,
            steps,
            state_digest=None if state.is_empty else state.digest,
            deployment=state.deployment.id if state.deployment else None,
            standing={name: group.inputs["hosts"] for name, group in state.groups.items()},
            destroys=self.destroys,
            ignored=() if self.destroys else self._ignored(),
            verdicts=() if self.destroys else self._verdicts(state),
        )

    def _verdicts(self, state: State) -> list[Verdict]:
        provider = self.reconciler.find_provider(self.job.spec.provider)
        asked = {mesh.name: mesh.hosts for mesh in self.job.spec.meshes}
        return list(provider.preflight(self.job.site(state), asked))

    def _ignored(self) -> set[str]:
        """Return the settings of the job that its provider cannot honour."""
        provider = self.reconciler.find_provider(self.job.spec.provider)
        return {
            path.removeprefix("resources.")
            for mesh in self.job.spec.meshes
            for path in provider.ignores
            if _has(mesh.plain(), path)
        }

    def _admit(self, plan: Plan) -> None:
        """Refuse a plan that its provider says cannot succeed, before any call that changes something."""
        refusals = [verdict.text for verdict in plan.verdicts if verdict.is_refusal]
        if refusals and not plan.is_empty:
            raise CapacityError("the provider refuses the plan", "\n".join(refusals), done=["Nothing was changed."])

    # --- between turns ------------------------------------------------------------------------------

    def _unfinished(self, state: State) -> dict[str, tuple[int, ...]]:
        """Return mesh -> ranks that this apply asked for and that do not serve yet."""
        found = {}
        for name, group in state.groups.items():
            if self.targets and group.urn not in self.targets:
                continue
            ranks = tuple(entry["rank"] for entry in group.outputs.get("unfinished") or ())
            if ranks:
                found[name] = ranks
        return found

    def _watch(self, state: State, unfinished: dict[str, tuple[int, ...]], deadline: float, stop: "Stop") -> bool:
        """Look, without the lock, until another turn has something to do.  False when the time is over."""
        site = self.job.site(state)
        pause = WATCH_S
        while time.monotonic() < deadline:
            if stop.wait(pause):
                return True
            found = self.reconciler.look(site, not_before=time.monotonic())
            for mesh, ranks in unfinished.items():
                newest = _newest(found, mesh)
                own = [newest[rank] for rank in ranks if rank in newest]
                self.reconciler.on_progress(Progress.of(mesh, len(ranks), own))
                if len(own) < len(ranks) or any(not host.phase.is_alive for host in own):
                    return True
                if all(host.phase is Phase.READY for host in own):
                    return True
            pause = min(pause * 1.5, WATCH_MAX_S)
        return False

    # --- words for what stands ----------------------------------------------------------------------

    def standing(self) -> list[str]:
        """Return what runs now, a line per mesh."""
        groups = self.job.state.groups
        lines = []
        for name, group in sorted(groups.items()):
            lines.append(f"  {name}: {len(engine.members(group))} of {group.inputs['hosts']} hosts serve")
        if not lines:
            return ["Now: nothing of this job runs."]
        return ["Now:", *lines, f"To remove it: {self.job.command('destroy')}"]

    def _failed(self, failures: list[Failure]) -> InfraError:
        kinds = {failure.error for failure in failures}
        kind = kinds.pop() if len(kinds) == 1 else PartError
        details = []
        for failure in failures:
            kept = "what answers is kept" if failure.is_part_kept else "what this apply asked for was removed again"
            details.append(f"{failure.mesh}[{ranges(failure.ranks)}]: {failure.reason}; {kept}.")
        return kind(
            "hosts did not come",
            "\n".join(details),
            done=self.standing(),
            next_command=self.job.command("apply"),
        )

    def _stopped(self) -> CancelledError:
        return CancelledError(
            "stopped",
            "Nothing was undone; what was made is recorded.",
            done=self.standing(),
            next_command=self.job.command("destroy" if self.destroys else "apply"),
        )


class _Guard:
    """Compares, under the lock, what the engine is about to do with what was approved."""

    def __init__(self, session: Session, approve: Callable[[Plan], bool], approved: Plan | None) -> None:
        self._session, self._approve = session, approve
        self.approved = approved
        self.plan: Plan | None = None
        """What the engine wanted in the last turn."""
        self.error: Exception | None = None
        self._turns = 0

    def __call__(self, steps: list[Step]) -> str | None:
        """Return None to go on, or why nothing may be touched."""
        try:
            self.plan = self._session._read(steps)
            self._turns += 1
            return self._judge(self.plan)
        except Exception as error:
            self.error = error
            return str(error) or type(error).__name__

    def _judge(self, plan: Plan) -> str | None:
        if self._turns > 1 and self.approved is not None:
            extra = planning.uncovered(self.approved, plan, render.change_line)
            if extra:
                raise self._stale(extra)
            return None
        if self.approved is None:
            self._session._admit(plan)
            if plan.is_empty:
                return "nothing to do"
            if not self._approve(plan):
                raise CancelledError("not applied", "The plan was not approved; nothing was changed.")
            self.approved = plan
            return None
        if differences := planning.moved(self.approved, plan, render.change_line):
            raise self._stale(differences)
        return None

    def _stale(self, differences: list[str]) -> PlanStaleError:
        return PlanStaleError(
            "the plan is stale",
            "\n".join(["The world moved since it was approved:", *(f"  {line}" for line in differences)]),
            done=["Nothing was changed."] if self._turns == 1 else self._session.standing(),
            next_command=self._session.job.command("plan"),
        )


def status(job: Job, *, hooks: Hooks = Hooks()) -> Standing:
    """Return what stands: the state, checked against what the provider finds now.  No engine is needed."""
    state = job.state
    found = hooks.find_provider(job.spec.provider).find(job.site(state)) if state.deployment else []
    living = {(host.mesh, host.rank, host.generation): host for host in found}
    meshes = {}
    for name, group in sorted(state.groups.items()):
        listed = [(name, entry["rank"], entry["generation"]) for entry in engine.members(group)]
        up = [key for key in listed if key in living and living[key].phase is Phase.READY]
        notes = []
        for key in sorted(set(listed) - set(up)):
            host = living.get(key)
            notes.append(f"rank {key[1]} {f'{host.phase.value}: {host.reason}' if host else 'gone'}".rstrip(": "))
        notes += [
            f"rank {entry['rank']} {entry.get('phase') or 'missing'}" for entry in group.outputs.get("unfinished") or ()
        ]
        meshes[name] = StandingMesh(wanted=group.inputs["hosts"], serving=len(up), notes=tuple(notes))
    return Standing(
        job=job.spec.name,
        target=job.spec.target,
        deployment=state.deployment.id if state.deployment else None,
        state_digest=None if state.is_empty else state.digest,
        meshes=meshes,
        changed=tuple(_changed(job)),
    )


def sweep(job: Job, deployment: str, approve: Callable[[Plan], bool], *, hooks: Hooks = Hooks()) -> int:
    """Remove everything that carries *deployment*, without any state of it; return how many hosts there were.

    Raises:
        NotFoundError: nothing carries that id.
        PartError: something could not be removed.
    """
    state = job.state
    if state.deployment is not None and state.deployment.id == deployment:
        raise UsageError(
            "this deployment has a state", "Its state says what belongs to it.", hint=job.command("destroy")
        )
    site = job.site(state).model_copy(update={"deployment": deployment})
    reconciler = Reconciler(home=job.workspace.home, workdir=job.workspace.workdir, find_provider=hooks.find_provider)
    found = reconciler.look(site)
    if not found:
        raise NotFoundError("no such deployment", f"Nothing on {job.spec.target} carries the id {deployment}.")
    by_mesh: dict[str, list[int]] = {}
    for host in found:
        by_mesh.setdefault(host.mesh, []).append(host.rank)
    changes = tuple(
        Change(mesh=mesh, action=Action.DELETE, ranks=tuple(sorted(set(ranks))), reasons=(Reason(text="destroyed"),))
        for mesh, ranks in sorted(by_mesh.items())
    )
    made = Plan(
        job=job.spec.name,
        target=job.spec.target,
        provider=job.spec.provider,
        spec_digest=job.spec.digest,
        deployment=deployment,
        destroys=True,
        ends_deployment=True,
        changes=changes,
    )
    if not approve(made):
        raise CancelledError("not destroyed", "It was not approved; nothing was changed.")
    reconciler.sweep(site)
    return len(found)


def _nothing() -> None:
    """The program of a stack that is to be empty."""


def choose(job: Job, meshes: Iterable[str]) -> tuple[str, ...]:
    """Return the meshes chosen with `--mesh`.

    Raises:
        NotFoundError: one stands neither in the job file nor in the state.
    """
    return _chosen(job, job.state, meshes)


def _chosen(job: Job, state: State, meshes: Iterable[str]) -> tuple[str, ...]:
    """Return the meshes chosen with `--mesh`, each of which stands in the job file or the state."""
    chosen = tuple(dict.fromkeys(meshes))
    known = sorted({*state.groups, *(mesh.name for mesh in job.spec.meshes)})
    for name in chosen:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, n=1)
            raise NotFoundError(
                "no such mesh",
                f"{job.file} has no mesh `{name}`; there is {', '.join(f'`{k}`' for k in known)}.",
                hint=f"did you mean `{near[0]}`?" if near else "",
            )
    return chosen


def _targets(job: Job, state: State, chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Return the resources that an operation on some meshes may touch: theirs, and what they stand on."""
    if not chosen:
        return ()
    project = f"urn:pulumi:{job.workspace.stack}::{engine.PROJECT}"
    urns = [f"{project}::monarch:{job.spec.provider}:HostGroup::{name}" for name in chosen]
    if state.deployment is None:
        urns.append(f"{project}::monarch:index:Deployment::deployment")
    if state.site is None:
        urns.append(f"{project}::monarch:{job.spec.provider}:Site::site")
    return tuple(urns)


def _newest(hosts: Iterable[Host], mesh: str) -> dict[int, Host]:
    """Return rank -> its host of the highest generation."""
    own = sorted((host for host in hosts if host.mesh == mesh), key=lambda host: host.generation)
    return {host.rank: host for host in own}


def _has(values: Any, path: str) -> bool:
    for part in path.split("."):
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return True
