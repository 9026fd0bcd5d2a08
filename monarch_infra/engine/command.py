"""One run of the engine's command: start it, feed it the program, gather its events, stop it.

The command is started once per operation by us, with our own language and event servers; it knows nothing of
plans or providers.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi import log
from pulumi.automation._server import LanguageServer
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import events_pb2_grpc, language_pb2, language_pb2_grpc

from monarch_infra.engine.workspace import Workspace

Program = Callable[[], None]
Event = dict[str, Any]
OnRun = Callable[[list[Event]], str | None]
"""Called before the program runs, with the events so far; a text stops the operation before anything is touched."""

SAID_MAX = 2000
"""The end of what the engine printed tells why it stopped; a message longer than a screen is not read."""

THREADS = 8
"""The language and the event server together serve a handful of calls at a time."""

LEASH = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() == int(sys.argv[1]):  # else we are dead already
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Has the kernel kill the engine when we die, then becomes the engine.

An engine that outlives us gets no answer for the create in flight, forgets it, and the host is nobody's.
The signal follows the *thread* that started the child, which is the one that waits for it.  Not a `preexec_fn`:
that forks a process in which gRPC's threads hold locks.  It costs 30 ms.
"""


def _unsaid(*_given: Any, **_named: Any) -> None:
    """Stand for the SDK's debug messages: several calls to the engine per resource, which nobody reads."""


log.debug = _unsaid


@dataclass
class Finished:
    """What is left of one run of the command."""

    code: int
    events: list[Event]
    output: str
    refusal: str | None = None

    @property
    def errors(self) -> list[str]:
        """Return what the engine said went wrong, once each, without its own decoration."""
        found = []
        for event in self.events:
            diagnostic = event.get("diagnosticEvent", {})
            if diagnostic.get("severity") == "error":
                text = diagnostic["message"].strip()
                if text and text not in found:
                    found.append(text)
        return found

    @property
    def words(self) -> str:
        """Return why the command failed, in the engine's words, or how it ended where it said nothing."""
        if self.errors:
            return "\n".join(self.errors)
        how = f"signal {-self.code}" if self.code < 0 else f"code {self.code}"
        return self.output.strip()[-SAID_MAX:] or f"It ended with {how} and said nothing."


class _Language(LanguageServer):
    """Runs our program for the engine, and lets the caller look at the preview before the update's run."""

    def __init__(self, program: Program, events: list[Event], on_run: OnRun | None) -> None:
        super().__init__(program)
        self._events, self._on_run = events, on_run
        self.refusal: str | None = None

    def Run(self, request: Any, context: Any) -> Any:
        if self._on_run is not None and not request.dryRun:
            # An exception here would reach the user as a gRPC error without a cause.
            self.refusal = self._on_run(list(self._events))
            if self.refusal is not None:
                return language_pb2.RunResponse(error=self.refusal)
        try:
            return super().Run(request, context)  # type: ignore[no-untyped-call]
        except grpc.RpcError as error:
            # The engine ended under the program; how it ended is the news, and a traceback of ours would hide it.
            return language_pb2.RunResponse(error=f"the engine has gone: {error.code()}")


class _Events(events_pb2_grpc.EventsServicer):
    """Takes the engine's events as they come."""

    def __init__(self, events: list[Event], on_event: Callable[[Event], None] | None) -> None:
        self._events, self._on_event = events, on_event

    def StreamEvents(self, requests: Iterator[Any], context: Any) -> Any:
        for request in requests:
            event = json.loads(request.event)
            self._events.append(event)
            if self._on_event is not None:
                self._on_event(event)
        return empty_pb2.Empty()


@dataclass
class Command:
    """The engine's command for one workspace."""

    binary: Path
    workspace: Workspace
    environment: dict[str, str] = field(default_factory=dict)
    """Added to the workspace's, such as the port of our plug-in."""
    _running: subprocess.Popen[str] | None = None

    def init(self) -> Finished:
        """Make the stack; its state is empty."""
        return self.run("stack", ["init", self.workspace.stack, "--no-select"])

    def run(self, operation: str, flags: Iterable[str] = ()) -> Finished:
        """Run a command that needs no program."""
        return self._wait([operation, *flags], [])

    def run_program(
        self,
        operation: str,
        program: Program,
        *,
        flags: Iterable[str] = (),
        on_run: OnRun | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> Finished:
        """Run an operation over *program*, which runs in this process."""
        events: list[Event] = []
        language = _Language(program, events, on_run)
        with _serving(language, _Events(events, on_event)) as port:
            own = [
                f"--client=127.0.0.1:{port}",
                "--exec-kind=auto.inline",
                f"--event-log=tcp://127.0.0.1:{port}",
                "--suppress-outputs",
                "--skip-plugin-pre-install",
            ]
            finished = self._wait([operation, *own, f"--stack={self.workspace.stack}", *flags], events)
        finished.refusal = language.refusal
        return finished

    def interrupt(self) -> None:
        """Ask the running engine to stop gracefully; it cancels what is in flight and records what exists."""
        if self._running is not None and self._running.poll() is None:
            self._running.send_signal(signal.SIGINT)

    def kill(self) -> None:
        if self._running is not None and self._running.poll() is None:
            self._running.kill()

    def _wait(self, arguments: list[str], events: list[Event]) -> Finished:
        leash = [sys.executable, "-I", "-S", "-c", LEASH, str(os.getpid())]
        child = subprocess.Popen(
            [*leash, str(self.binary), *arguments, "--non-interactive", "--color=never"],
            cwd=self.workspace.root,
            env=self.workspace.environment() | self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a Ctrl-C of the terminal reaches us alone; we pass it on once
        )
        self._running = child
        try:
            output, _ = child.communicate()
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
            self._running = None
        return Finished(child.returncode, events, output)


@contextmanager
def _serving(language: _Language, events: _Events) -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(max_workers=THREADS), options=_GRPC_CHANNEL_OPTIONS)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(language, server)
    events_pb2_grpc.add_EventsServicer_to_server(events, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(grace=0).wait()
