"""The line: load -> compile -> preview -> read, and apply's loop of turns.

What the command, reviews and `InfraJob` call.  It joins the parts and holds apply to what was approved; it prints
nothing.  Pulumi is loaded inside the functions that need it: reading outputs never does.
"""

import os
import queue
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monarch_infra import engine, render, spec, versions
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
    EngineError,
    InfraError,
    NotFoundError,
    PartError,
    PlanStaleError,
    Problem,
    UsageError,
)
from monarch_infra.provider import Provider
from monarch_infra.reconcile import SETTLE_S, Progress, Reconciler, decide, parse

if TYPE_CHECKING:
    from monarch_infra.engine.command import Finished
    from monarch_infra.engine.operations import Engine

WATCH_S = 0.2
WATCH_MAX_S = 5.0
"""Between turns we look without the lock: soon for processes, seldom for machines that boot for minutes."""


ENV_FILE = "MONARCH_INFRA_JOB"
ENV_TARGET = "MONARCH_INFRA_TARGET"
"""Name the job file and the target for whoever cannot be given arguments, such as plain `pulumi`."""


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
        return shlex.join(words)

    def standing_site(self, state: State) -> Site:
        """Return the site whose hosts stand: the state's, for the file may name another provider by now."""
        asked = self.site(state)
        if state.site is None:
            return asked
        return asked.model_copy(
            update={"provider": state.site.inputs["provider"], "options": state.site.inputs.get("options") or {}}
        )

    def site(self, state: State) -> Site:
        """Return the site as the job file asks for it, under the deployment that the state names."""
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


def load(file: Path, target: str = spec.DEFAULT_TARGET) -> Job:
    """Read a job file for one target.

    Raises:
        SpecError: the file is wrong for this target.
        NotFoundError: it has no such target.
    """
    loaded = spec.load(file, target, **versions.client())
    return Job(file, loaded.spec, Workspace.beside(file, loaded.spec.stack), loaded.warnings)


def load_from_environment() -> Job:
    """Read the job file that the environment names, for plain `pulumi`, which passes no arguments on."""
    file, target = os.environ.get(ENV_FILE, "job.yaml"), os.environ.get(ENV_TARGET, spec.DEFAULT_TARGET)
    return load(Path(file), target)


def outputs(file: Path, target: str = spec.DEFAULT_TARGET) -> Outputs | None:
    """Return the hosts that serve, from the state; None where nothing was applied."""
    return load(file, target).state.outputs


def unfinished(state: State) -> dict[str, tuple[int, ...]]:
    """Return mesh -> ranks that should serve and do not, as far as the state knows."""
    found = {}
    for name, group in state.groups.items():
        if ranks := tuple(entry["rank"] for entry in group.outputs.get("unfinished") or ()):
            found[name] = ranks
    return found


def changed(file: Path, target: str = spec.DEFAULT_TARGET) -> list[str]:
    """Return what the job file asks for that its hosts were not made from, as `trainers.hosts 2 -> 4`."""
    return _changed(load(file, target))


def _changed(job: Job) -> list[str]:
    """Compare by the same judgement as a plan: what it would not show is no change here either."""
    groups = job.state.groups
    names = {mesh.name for mesh in job.spec.meshes}
    lines = [f"{name} is not in the job file any more" for name in sorted(set(groups) - names)]
    for mesh in job.spec.meshes:
        if mesh.name not in groups:
            lines.append(f"{mesh.name} is new")
            continue
        group = groups[mesh.name]
        old = MeshSpec.from_inputs(mesh.name, group.inputs)
        reasons = decide(old, mesh, parse(group.outputs), job.provider.diff(old, mesh)).reasons
        lines += [render.setting_line(f"{mesh.name}.{reason.path}", reason.old, reason.new) for reason in reasons]
    return lines


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
    """A wish to stop, raised once for gracefully and twice for at once.

    It is raised inside a signal handler, which may have cut into any instruction of the waiting thread: a lock of an
    Event could be held just then, a SimpleQueue's cannot.
    """

    def __init__(self) -> None:
        self._is_wished = False
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._session: Session | None = None
        self._is_asking = False

    @property
    def is_wished(self) -> bool:
        return self._is_wished

    def wait(self, seconds: float) -> bool:
        """Wait until it is wished, but no longer than that; return whether it is."""
        if not self._is_wished:
            with suppress(queue.Empty):
                self._bell.get(timeout=seconds)
        return self._is_wished

    def now(self) -> bool:
        """Stop.  Returns False if that was wished before already, so that the caller ends at once.

        Raises:
            CancelledError: a person is being asked, and the question is what has to end.
        """
        if self._is_wished:
            if self._session is not None:
                self._session.engine.kill()
            return False
        self._is_wished = True
        self._bell.put(None)
        if self._is_asking:
            raise _unapproved()
        if self._session is not None:
            self._session.reconciler.stop()
            self._session.engine.interrupt()
        return True

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Let `now` end the question that is asked inside."""
        self._is_asking = True
        try:
            if self._is_wished:
                raise _unapproved()
            yield
        finally:
            self._is_asking = False

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
    """What the command was told to keep to; empty for everything."""
    chosen: tuple[str, ...]
    """The meshes it was told to keep to."""
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
            yield cls(job, pulumi, reconciler, program, _targets(job, state, chosen), chosen, destroys)

    def plan(self) -> Plan:
        try:
            steps = self.engine.preview(self.program, targets=self.targets)
        except EngineError as error:
            raise self._cause(error) from error
        return self._read(steps)

    def apply(self, approve: Callable[[Plan], bool], *, asks_first: bool, waits: bool, stop: "Stop") -> Applied:
        approved: Plan | None = None
        # An update writes a state even if it finds nothing to do, and a destroy must not be what begins one.
        if asks_first or self.destroys or self.job.workspace.exists:
            approved = self.plan()
            self._admit(approved)
            if approved.is_empty:
                return Applied(plan=approved, outputs=self.job.state.outputs)
            with stop.asking():
                if not approve(approved):
                    raise _unapproved()
        deadline = time.monotonic() + self.job.spec.ready_timeout_s
        guard = _Guard(self, approve, approved, stop)
        while True:
            failed = {failure.mesh for failure in self.reconciler.failures}
            finished = self._turn(guard, self._work(guard.approved, failed), stop)
            assert guard.plan is not None
            if guard.approved is None:
                return Applied(plan=guard.plan, outputs=self.job.state.outputs)
            self._check(finished, failed, stop)
            failed |= {failure.mesh for failure in self.reconciler.failures}
            state = self.job.state
            unfinished = {} if self.destroys else self._unfinished(state, {*self._meshes(guard.approved)} - failed)
            if not unfinished or not waits:
                break
            # A mesh that failed is told at the end: the others are on their way and cost whether or not we wait.
            if not self._watch(state, unfinished, deadline, stop):
                self.reconciler.giving_up = frozenset(unfinished)
            if stop.is_wished:
                raise self._stopped()
        if self.reconciler.failures:
            raise self._failed()
        if guard.approved.ends_deployment:
            self.job.workspace.forget()
        counts = {mesh: len(ranks) for mesh, ranks in unfinished.items()}
        return Applied(plan=guard.approved, outputs=state.outputs, unfinished=counts)

    # --- one turn -----------------------------------------------------------------------------------

    def _turn(self, guard: "_Guard", targets: tuple[str, ...], stop: "Stop") -> "Finished":
        try:
            finished = self.engine.update(self.program, guard, targets=targets)
        except EngineError as error:
            if stop.is_wished:
                raise self._stopped() from error
            raise self._cause(error) from error
        if guard.error is not None:
            raise guard.error
        return finished

    def _work(self, approved: Plan | None, failed: set[str]) -> tuple[str, ...]:
        """Return the resources that a turn may touch: those of the plan's meshes, without the ones that failed.

        What drifts elsewhere while we wait is work for another plan and no reason to refuse this one.
        """
        if self.destroys or approved is None:
            return self.targets
        state = self.job.state
        meshes = [mesh for mesh in self._meshes(approved) if mesh not in failed]
        if not failed and {*state.groups, *(mesh.name for mesh in self.job.spec.meshes)} <= set(meshes):
            return self.targets
        return _targets(self.job, state, meshes, with_site=not self.chosen)

    @staticmethod
    def _meshes(plan: Plan) -> list[str]:
        return sorted({change.mesh for change in plan.changes if change.mesh})

    def _check(self, finished: "Finished", failed: set[str], stop: "Stop") -> None:
        """Raise what went wrong in a turn and keeps the next one from its work; failures of meshes wait."""
        if stop.is_wished:
            raise self._stopped()
        if self.reconciler.errors:
            raise self._failed()
        has_failed = {failure.mesh for failure in self.reconciler.failures} > failed
        if finished.code != 0 and finished.refusal is None and not has_failed:
            raise InfraError(
                "the engine ended before its work was done",
                finished.words,
                done=self.standing(),
                next_command=self.command("destroy" if self.destroys else "apply"),
            )

    def _cause(self, error: EngineError) -> Exception:
        """Return what a provider said where that is why the engine failed, and the engine's words where it is not."""
        return self._told(self.reconciler.errors[0]) if self.reconciler.errors else error

    def _told(self, error: Exception) -> InfraError:
        """Return an error with what stands now and the command to type next."""
        if isinstance(error, InfraError):
            told = error
        else:
            told = BugError("a provider failed unexpectedly", f"{type(error).__name__}: {error}")
            told.__cause__ = error
        told.done = (*told.done, *self.standing())
        told.next_command = told.next_command or self.command("destroy" if self.destroys else "apply")
        return told

    def command(self, verb: str) -> str:
        """Return a command line that does *verb* to the meshes of this session."""
        return self.job.command(verb, *(word for mesh in self.chosen for word in ("--mesh", mesh)))

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
        standing = {name: group.inputs["hosts"] for name, group in state.groups.items()}
        asked = {
            mesh.name: hosts
            for mesh in self.job.spec.meshes
            if (hosts := mesh.hosts if not self.chosen or mesh.name in self.chosen else standing.get(mesh.name, 0))
        }
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
        adds = any(change.action in (Action.CREATE, Action.REPLACE) for change in plan.changes)
        if refusals and adds:
            raise CapacityError("the provider refuses the plan", "\n".join(refusals), done=["Nothing was changed."])

    # --- between turns ------------------------------------------------------------------------------

    def _unfinished(self, state: State, meshes: set[str]) -> dict[str, tuple[int, ...]]:
        """Return mesh -> ranks that do not serve yet, of the meshes that this apply asked for."""
        return {name: ranks for name, ranks in unfinished(state).items() if name in meshes}

    def _watch(self, state: State, unfinished: dict[str, tuple[int, ...]], deadline: float, stop: "Stop") -> bool:
        """Look, without the lock, until another turn has something to do.  False when the time is over."""
        site = self.job.site(state)
        pause = WATCH_S
        while time.monotonic() < deadline:
            if stop.wait(pause):
                return True
            try:
                found = self.reconciler.look(site, not_before=time.monotonic())
            except Exception as error:
                raise self._told(error) from error
            for mesh, ranks in unfinished.items():
                newest = _newest(found, mesh)
                own = [newest[rank] for rank in ranks if rank in newest]
                with suppress(OSError, ValueError):  # the same as in the reconciler: who listens may have gone away
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
        return ["Now:", *lines, f"To remove it: {self.command('destroy')}"]

    def _failed(self) -> InfraError:
        """Return what went wrong in this apply; several causes are a part that failed."""
        failures, errors = self.reconciler.failures, self.reconciler.errors
        if not failures and len({str(error) for error in errors}) == 1:
            return self._told(errors[0])
        details = []
        for failure in failures:
            kept = "what answers is kept" if failure.is_part_kept else "what this apply asked for was removed again"
            details.append(f"{failure.mesh}[{ranges(failure.ranks)}]: {failure.reason}; {kept}.")
        details += dict.fromkeys(f"{error}." for error in errors)
        kinds = {failure.error for failure in failures}
        kinds |= {type(error) if isinstance(error, InfraError) else BugError for error in errors}
        return (kinds.pop() if len(kinds) == 1 else PartError)(
            "hosts did not come" if failures else "the work could not be done",
            "\n".join(details),
            done=self.standing(),
            next_command=self.command("destroy" if self.destroys else "apply"),
        )

    def _stopped(self) -> CancelledError:
        return CancelledError(
            "stopped",
            "Nothing was undone; what was made is recorded.",
            done=self.standing(),
            next_command=self.command("destroy" if self.destroys else "apply"),
        )


def _unapproved() -> CancelledError:
    return CancelledError("not approved", "Nothing was changed.")


class _Guard:
    """Compares, under the lock, what the engine is about to do with what was approved."""

    def __init__(self, session: Session, approve: Callable[[Plan], bool], approved: Plan | None, stop: "Stop") -> None:
        self._session, self._approve, self._stop = session, approve, stop
        self.approved = approved
        self.plan: Plan | None = None
        """What the engine wanted in the last turn."""
        self.error: Exception | None = None
        self._turns = 0

    def __call__(self, steps: list[Step]) -> str | None:
        """Return None to go on, or why nothing may be touched."""
        try:
            if self._stop.is_wished:
                raise self._session._stopped()
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
                raise _unapproved()
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
            next_command=self._session.command("plan"),
        )


def status(job: Job, *, hooks: Hooks = Hooks()) -> Standing:
    """Return what stands: the state, checked against what the provider finds now.  No engine is needed."""
    state = job.state
    site = job.standing_site(state)
    found = hooks.find_provider(site.provider).find(site) if state.deployment else []
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


def _targets(job: Job, state: State, chosen: Iterable[str], *, with_site: bool = False) -> tuple[str, ...]:
    """Return the resources that an operation on some meshes may touch: theirs, and what they stand on.

    A mesh may stand under another type than it is asked for: the target's provider was changed.  A name that no
    mesh has is of strays, which are the site's.
    """
    if not (chosen := tuple(chosen)) and not with_site:
        return ()
    project = f"urn:pulumi:{job.workspace.stack}::{engine.PROJECT}"
    groups = state.groups
    asked = {mesh.name for mesh in job.spec.meshes}
    deployment = f"{project}::monarch:index:Deployment::deployment"
    site = f"{project}::monarch:{job.spec.provider}:Site::site"
    urns = [groups[name].urn for name in chosen if name in groups]
    urns += [f"{project}::monarch:{job.spec.provider}:HostGroup::{name}" for name in chosen if name in asked]
    if state.deployment is None:
        urns.append(deployment)
    if with_site or state.site is None or state.site.urn != site:
        urns += [site, *([state.site.urn] if state.site is not None else ())]
    return tuple(dict.fromkeys(urns))


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
