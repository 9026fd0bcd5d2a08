"""Preview and update, as the engine does them, reduced to steps.

It runs what it is given and reports what the engine said; what to do about it is `line`'s.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from monarch_infra.engine import lock
from monarch_infra.engine.command import Command, Event, Finished, Program
from monarch_infra.engine.state import read
from monarch_infra.engine.workspace import PROJECT, Workspace
from monarch_infra.model import Step
from monarch_infra.problem import EngineError, LockedError

IDLE_OPS = frozenset({"same", "refresh", "read"})
"""What the engine does to a resource that stays as it is."""

PARALLEL = 64
"""Meshes in flight at once; each is one thread of the plug-in that mostly waits."""


@dataclass
class Engine:
    """The engine for one stack, attached to our plug-in."""

    binary: Path
    workspace: Workspace
    plugin_port: int
    _command: Command | None = field(default=None, repr=False)

    def preview(self, program: Program, *, targets: Iterable[str] = ()) -> list[Step]:
        """Return what an update would do.  Takes no lock and writes nothing to the stack."""
        with self._stack() as command:
            finished = command.run_program("preview", program, flags=_targets(targets))
        _check(finished)
        return steps(finished.events)

    def update(
        self, program: Program, decide: Callable[[list[Step]], str | None], *, targets: Iterable[str] = ()
    ) -> Finished:
        """Preview under the lock, hand the steps to *decide*, and carry them out unless it returns a refusal.

        Raises:
            LockedError: somebody else who is alive, or may be, holds the stack.
            EngineError: the engine failed before it touched anything.
        """
        self.workspace.prepare()
        if left := lock.release_dead(self.workspace):
            raise _locked(left)
        self.workspace.trim()
        self.workspace.require_room()
        command = self._made(self.workspace)
        if not self.workspace.exists:
            with self.workspace.alone():  # two first applies at once would seal one state with two keys
                made = None if self.workspace.exists else command.init()
            if made is not None and made.code != 0:
                raise EngineError("the engine could not begin", made.words)
        self._command = command
        try:
            finished = command.run_program(
                "up",
                program,
                flags=["--yes", "--continue-on-error", f"--parallel={PARALLEL}", *_targets(targets)],
                on_run=lambda events: decide(steps(events)),
            )
        finally:
            self._command = None
        if finished.refusal is None:
            _check_started(finished, self.workspace)
        if finished.code == 0 and read(self.workspace).has_pending:
            # An operation that was cut off stays in the state until a refresh drops it; what it made was adopted.
            command.run("refresh", ["--yes", "--skip-preview", "--clear-pending-creates", "-s", self.workspace.stack])
        return finished

    def interrupt(self) -> None:
        """Stop gracefully: what is in flight is cancelled and recorded."""
        if self._command is not None:
            self._command.interrupt()

    def kill(self) -> None:
        if self._command is not None:
            self._command.kill()

    @contextmanager
    def _stack(self) -> Iterator[Command]:
        """Give a command whose stack exists: the real one, or an empty one aside, for a plan leaves nothing behind."""
        with tempfile.TemporaryDirectory(prefix="monarch-infra-") as aside:
            if self.workspace.exists:
                self.workspace.prepare()
                command = self._made(self.workspace)
                command.environment["PULUMI_HOME"] = aside  # where it writes its log
                yield command
                return
            workspace = Workspace(Path(aside), self.workspace.stack)
            workspace.prepare()
            command = self._made(workspace)
            made = command.init()
            if made.code != 0:
                raise EngineError("the engine could not make a plan", made.words)
            yield command

    def _made(self, workspace: Workspace) -> Command:
        return Command(self.binary, workspace, {"PULUMI_DEBUG_PROVIDERS": f"monarch:{self.plugin_port}"})


def steps(events: Iterable[Event]) -> list[Step]:
    """Return the engine's planned steps on resources of ours, without those that leave things as they are."""
    found = []
    for event in events:
        pre = event.get("resourcePreEvent", {})
        metadata = pre.get("metadata", {})
        if not pre.get("planning") or metadata["op"] in IDLE_OPS or not metadata["type"].startswith("monarch:"):
            continue
        old, new = metadata.get("old") or {}, metadata.get("new") or {}
        found.append(
            Step(
                kind=metadata["type"].split(":")[-1],
                name=metadata["urn"].split("::")[-1],
                op=metadata["op"],
                paths={path: diff["diffKind"] for path, diff in (metadata.get("detailedDiff") or {}).items()},
                old=old.get("inputs") or {},
                new=new.get("inputs") or {},
                made=old.get("outputs") or {},
            )
        )
    return found


def _targets(urns: Iterable[str]) -> list[str]:
    """Return the flags that keep the engine to *urns*.

    Each goes as a pattern, though it fits one resource only: literal ones are looked for in the state before the
    program runs, and the engine refuses those that the program is about to make.
    """
    return [f"--target={urn.replace(f'::{PROJECT}::', f'::{PROJECT}*::')}" for urn in urns]


def _check(finished: Finished) -> None:
    if finished.code != 0:
        raise EngineError("the engine could not make a plan", finished.words)


def _locked(holders: list[lock.Holder]) -> LockedError:
    return LockedError(
        "the stack is locked",
        f"Held by {holders[0]}." if holders else "Held by an apply that has ended since.",
        hint="wait until that apply has ended, then try again",
    )


def _check_started(finished: Finished, workspace: Workspace) -> None:
    """Tell a failure of the engine itself from one of a resource, which the reconciler has noted."""
    if finished.code == 0 or any(
        not e["resourcePreEvent"].get("planning") for e in finished.events if "resourcePreEvent" in e
    ):
        return
    if "is currently locked by" in finished.output:
        raise _locked(lock.holders(workspace))
    raise EngineError("the engine could not begin", finished.words)
