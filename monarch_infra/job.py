"""InfraJob: a Monarch job whose hosts come from a job file; the Python face of plan, apply and destroy.

Decides nothing that the state and the job file do not say, and loads Pulumi only where something is planned or done.
"""

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ValidationError

from monarch_infra import connect
from monarch_infra.connect.adapter import DEFAULT_PATH, JobState, JobTrait, is_current, stop_job_sidecar
from monarch_infra.engine import PICKLE
from monarch_infra.model import Action, Outputs, Plan, ranges
from monarch_infra.problem import InfraError, NotFoundError, NotReadyError, PlanStaleError, RefusedError, UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

    from monarch_infra.line import Job

OWN_PATH: Final = "<beside the job file>"
"""Stands for the pickle's own path per deployment: with Monarch's default, two jobs in one directory share a file."""

CLIENTS: Final = ".monarch-infra"
"""Beside an outputs file without a stack: where the pickles of its deployments lie."""


class InfraJob(JobTrait):  # type: ignore[misc]  # Monarch is untyped
    """A Monarch job whose hosts come from a job file.

    Use it wherever Monarch takes a job:

        state = InfraJob("job.yaml").state()
        state.trainers.spawn_procs(per_host={"gpus": 8})

    `state()` makes hosts by itself only where there are none yet and they cost nothing.  Where the job file asks for
    something else than what runs, it says so and stops; `auto_apply=True` lets it go on if hosts are only added.

    Only names are kept, never hosts or a connection: the state of the stack is read each time, so the object, its
    pickle and a new process know the same.  Leaving it, or calling `kill()`, leaves the hosts up unless it was made
    with `kill="destroy"`.
    """

    def __init__(
        self,
        file: str | os.PathLike[str] = "job.yaml",
        target: str = "local",
        *,
        auto_apply: bool = False,
        kill: Literal["leave", "destroy"] = "leave",
        direct: bool | None = None,
        gateway: int | None = None,
        name: str | None = None,
    ) -> None:
        for option, value in (("direct", direct), ("gateway", gateway), ("name", name)):
            if value is not None:
                raise UsageError("not built yet", f"`InfraJob({option}=…)` comes with a later release.")
        if kill not in ("leave", "destroy"):
            raise UsageError("no such value", f"`kill` is 'leave' or 'destroy', not {kill!r}.")
        super().__init__()
        self._file: Path | None = Path(file).absolute()
        self._target = target
        self._outputs_file: Path | None = None
        self._auto_apply = auto_apply
        self._at_end = kill
        self._deployment: str | None = None
        """The deployment last connected to, and a digest of its workers: what `can_run` answers for."""
        self._workers: str | None = None
        self._seen: str | None = None

    @classmethod
    def from_outputs(cls, file: str | os.PathLike[str], credentials: str | os.PathLike[str] | None = None) -> "Self":
        """Return a job over the hosts that *file* names, as `monarch-infra output --json` writes it.

        For a machine that has neither the job file nor the state; it can connect, and nothing else.
        """
        if credentials is not None:
            raise UsageError("not built yet", "`InfraJob.from_outputs(credentials=…)` comes with mutual TLS.")
        job = cls()
        job._file, job._outputs_file = None, Path(file).absolute()
        return job

    # --- plan and apply -----------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return what `apply()` would do.  Changes nothing."""
        job = self._line("plan")
        from monarch_infra import line

        return line.plan(job)

    def apply(self, client_script: str | None = None) -> None:
        """Make the hosts what the job file asks for: create, add, remake and remove.

        This is the answer yes to whatever `plan()` shows.
        """
        if client_script is not None:
            raise UsageError("not built yet", "InfraJob does not run a client script on the hosts yet.")
        self._apply_through_line(lambda plan: True)
        self._mark_applied()

    def refresh(self) -> bool:
        """Return true if the hosts are others than at the last `state()`, so that another `state()` is worth it."""
        outputs = self._outputs()
        return (None if outputs is None else _digest(outputs.model_dump_json())) != self._seen

    # --- connecting ---------------------------------------------------------------------------------

    def state(self, cached_path: str | os.PathLike[str] | None = OWN_PATH) -> JobState:
        """Return the host meshes by name, connected to the workers that run now.

        The pickle at *cached_path* is written for Monarch's own tools and never read here: what runs is told by the
        state of the stack.

        Raises:
            NotFoundError: nothing is applied, and applying would cost money.
            PlanStaleError: the job file asks for something else than what runs.
            NotReadyError: other versions of Monarch or Python than here, or a host that does not answer.
        """
        outputs = self._whole()
        try:
            connect.verify(outputs)  # before Monarch starts a process for telemetry, which a failure would leave behind
        except NotReadyError as error:
            error.next_command = error.next_command or (self._command("plan") if self._file else "")
            raise
        self._mark_applied(outputs)
        state = JobState.over(super().state(None))
        self._seen = _digest(outputs.model_dump_json())
        if cached_path is not None:
            self._keep(self._own_path(outputs) if cached_path == OWN_PATH else Path(cached_path))
        return state

    @property
    def active(self) -> bool:
        """True while the stack has hosts, in this process or any other."""
        outputs = self._outputs()
        return outputs is not None and _has_hosts(outputs)

    @property
    def apply_id(self) -> str | None:
        """The id of the deployment: the same for every client, another after destroy and apply, None in between."""
        outputs = self._outputs()
        return None if outputs is None else outputs.deployment

    def can_run(self, spec: object) -> bool:
        """Return true if *spec* asks for exactly the hosts that this job was connected to, and they answer.

        Compares and probes; plans, applies and removes nothing.
        """
        if not isinstance(spec, InfraJob):
            return False
        try:
            outputs = spec._outputs()
            if outputs is None or (outputs.deployment, _workers(outputs)) != (self._deployment, self._workers):
                return False
            return not spec._moved_on() and all(
                connect.answering(host for mesh in outputs.meshes.values() for host in mesh.hosts)
            )
        except InfraError:
            return False

    # --- ending -------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Stop what this client started for itself.  Hosts go only if the job was made with `kill="destroy"`."""
        super().kill()
        if self._deployment is not None:
            stop_job_sidecar(self._deployment)  # also where the deployment is gone by now and has no id to ask for
        if self._at_end == "destroy":
            self._apply_through_line(lambda plan: True, destroys=True)
        elif self.active:
            print(f"hosts stay up; to remove them: {self._command('destroy')}", file=sys.stderr)

    def __enter__(self) -> "Self":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    # --- what Monarch calls -------------------------------------------------------------------------

    def _create(self, client_script: str | None) -> None:
        """Do nothing: the hosts are there before Monarch gets to this."""

    def _state(self) -> JobState:
        outputs = self._outputs()
        if outputs is None:
            raise self._nothing_applied()
        return connect.connect(outputs)

    def _kill(self) -> None:
        """Leave the hosts up.  Monarch calls this by itself, when a pickle does not fit the job it is asked for."""

    def _cleanup_log_context(self) -> dict[str, Any]:
        return {"job_type": type(self).__name__, "deployment": self._deployment}

    # --- what runs, and whether it is what the file asks for ----------------------------------------

    def _outputs(self) -> Outputs | None:
        if self._outputs_file is None:
            return self._line("read").state.outputs
        try:
            return Outputs.model_validate_json(self._outputs_file.read_bytes())
        except FileNotFoundError as error:
            raise NotFoundError("no such file", f"There is no outputs file {self._outputs_file}.") from error
        except ValidationError as error:
            raise UsageError(
                "not an outputs file",
                f"{self._outputs_file} is not what `monarch-infra output --json` of this release writes: "
                f"{error.errors()[0]['msg']} at {'.'.join(map(str, error.errors()[0]['loc'])) or 'its beginning'}.",
            ) from error

    def _whole(self) -> Outputs:
        """Return the outputs once the hosts are what the job file asks for; apply only what may be applied unasked."""
        outputs = self._outputs()
        has_hosts = outputs is not None and _has_hosts(outputs)
        moved = self._moved_on() if has_hosts else []
        if outputs is not None and has_hosts and not moved:
            self._must_be_whole()
            return outputs
        if self._outputs_file is not None:
            raise NotReadyError("no hosts", f"{self._outputs_file} names no host.")
        if moved and not self._auto_apply:
            raise PlanStaleError(
                "the job file asks for something else than what runs",
                f"changed: {', '.join(moved)}.",
                hint="look at the change, then apply it; or undo it in the file",
                next_command=self._command("plan"),
            )
        if not self._auto_apply and not self._line("apply").provider.is_free:
            raise self._nothing_applied()
        self._apply_through_line(_only_adds)
        if (outputs := self._outputs()) is None:
            raise self._nothing_applied()
        return outputs

    def _must_be_whole(self) -> None:
        """Raise if a rank does not serve: a HostMesh of fewer hosts than asked for would pass for the whole.

        A mesh that keeps a part (`on_partial: keep`) is taken as it is.
        """
        if self._file is None:
            return
        from monarch_infra import line

        job = self._line("apply")
        gangs = {mesh.name for mesh in job.spec.meshes if mesh.on_partial == "remove"}
        missing = {mesh: ranks for mesh, ranks in line.unfinished(job.state).items() if mesh in gangs}
        if missing:
            raise NotReadyError(
                "a mesh is not whole",
                f"Not serving: {', '.join(f'{mesh}[{ranges(ranks)}]' for mesh, ranks in missing.items())}.",
                next_command=self._command("apply"),
            )

    def _moved_on(self) -> list[str]:
        if self._file is None:
            return []
        from monarch_infra import line

        return line.changed(self._file, self._target)

    def _apply_through_line(self, approve: Callable[[Plan], bool], *, destroys: bool = False) -> None:
        job = self._line("destroy" if destroys else "apply")
        from monarch_infra import line

        # Nobody is asked for an answer, so nobody needs a plan made before the lock is taken.
        line.apply(job, approve=approve, asks_first=False, destroys=destroys)

    def _line(self, verb: str) -> "Job":
        """Return the job file as it is now, with the state that belongs to it.  Loads no Pulumi."""
        if self._file is None:
            raise UsageError(
                "no job file", f"This job comes from {self._outputs_file}; only a job file tells what to {verb}."
            )
        from monarch_infra import line

        return line.load(self._file, self._target)

    def _nothing_applied(self) -> NotFoundError:
        return NotFoundError(
            "nothing is applied",
            f"The job has no hosts on target `{self._target}`, and they are not free: they are made only when asked.",
            hint="apply first, or say InfraJob(…, auto_apply=True)",
            next_command=self._command("apply"),
        )

    # --- keeping ------------------------------------------------------------------------------------

    def _mark_applied(self, outputs: Outputs | None = None) -> None:
        """Let Monarch know that the hosts are there, and remember which."""
        outputs = outputs or self._outputs()
        super().apply()
        if outputs is not None:
            self._apply_id = self._deployment = outputs.deployment
            self._workers = _workers(outputs)

    def _own_path(self, outputs: Outputs) -> Path:
        home = self._outputs_file.parent / CLIENTS if self._outputs_file else self._line("read").workspace.home
        return home / f"{outputs.deployment[:8]}{PICKLE}"

    def _keep(self, path: Path) -> None:
        """Write the pickle for Monarch's tools.  Nothing depends on it, so a read-only directory is no failure."""
        try:
            self.dump(str(path))
        except OSError as error:
            print(f"warning: {path} not written: {error.strerror}", file=sys.stderr)
        if is_current(self):
            self.dump(DEFAULT_PATH)  # `monarch kill` and `monarch query` look nowhere else

    def _command(self, verb: str) -> str:
        if self._file is None:
            return f"monarch-infra {verb} --deployment {self.apply_id}"
        return self._line(verb).command(verb)


def _only_adds(plan: Plan) -> bool:
    """Return true; raise if *plan* does more than adding hosts.

    Raises:
        RefusedError: nobody has said yes to a plan that restarts or removes something.
    """
    more = [f"{change.action.value} {change.mesh}" for change in plan.changes if change.action is not Action.CREATE]
    if more:
        raise RefusedError(
            "the plan does more than adding hosts",
            f"Without being asked, InfraJob only adds hosts; this plan says {', '.join(more)}.",
            hint="look at it with monarch-infra plan, then apply it",
        )
    return True


def _has_hosts(outputs: Outputs) -> bool:
    return any(mesh.hosts for mesh in outputs.meshes.values())


def _workers(outputs: Outputs) -> str:
    """Return a digest of who the workers are: it changes when a host is remade, and tells nothing about them."""
    return _digest(
        repr(
            [
                (name, host.rank, host.generation, host.worker and host.worker.plain())
                for name, mesh in sorted(outputs.meshes.items())
                for host in mesh.hosts
            ]
        )
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
