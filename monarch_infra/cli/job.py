"""init, validate, plan, apply and destroy: the life of a job."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monarch_infra.cli.console import console
from monarch_infra.cli.options import job_file, meshes, not_built, target, wants_json
from monarch_infra.problem import EXIT_CHANGES, EXIT_KILLED, CancelledError, SpecError, UsageError

if TYPE_CHECKING:
    from monarch_infra.line import Job, Stop
    from monarch_infra.model import Applied, Plan

yes = click.option("-y", "--yes", is_flag=True, envvar="MONARCH_INFRA_YES", help="Do not ask.")
no_input = click.option(
    "--no-input", is_flag=True, envvar="MONARCH_INFRA_NO_INPUT", help="Never ask; fail where an answer is needed."
)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), default=".")
@not_built("--from", takes_value=True)
def init(directory: Path) -> None:
    """Write a small job.yaml and hello.py.  Never writes over a file."""
    from monarch_infra import spec

    files = spec.template()
    taken = [name for name in files if (directory / name).exists()]
    if taken:
        raise UsageError(
            "files exist already",
            f"{', '.join(str(directory / name) for name in taken)} would be written over; nothing was written.",
            hint="run it in an empty directory: monarch-infra init DIRECTORY",
        )
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
        console.out(f"wrote {directory / name}\n")
    where = "" if directory == Path(".") else f"cd {shlex.quote(str(directory))} && "
    console.say(f"next: {where}monarch-infra apply && python hello.py\n")


@click.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, metavar="[FILE]...")
@click.option("-t", "--target", help="Only this target; else all of them.")
@wants_json
@not_built("-q", "-v")
@not_built("--json-into", takes_value=True)
def validate(files: tuple[Path, ...], target: str | None, wants_json: bool) -> None:
    """Check job files for all their targets, without network or engine."""
    from monarch_infra import render, spec, versions

    problems = []
    for file in files or (Path("job.yaml"),):
        if target is not None:
            console.warn(spec.load(file, target, **versions.client()).warnings)
            continue
        report = spec.check(file, **versions.client())
        problems += report.errors
        console.warn(report.warnings)
    if problems:
        raise SpecError(problems)
    names = [str(file) for file in files or ("job.yaml",)]
    if wants_json:
        console.document({"format_version": render.FORMAT_VERSION, "files": names, "problems": []})
    else:
        console.out("".join(f"{name}: ok\n" for name in names))


@click.command()
@job_file
@target
@meshes
@click.option(
    "--detailed-exitcode",
    is_flag=True,
    envvar="MONARCH_INFRA_DETAILED_EXITCODE",
    help="Exit with 2 if there is anything to do.",
)
@click.option("--destroy", "destroys", is_flag=True, help="Show what destroy would do.")
@wants_json
@not_built("--offline", "--refresh-only")
@not_built("--out", "--replace", "--show", "--format", takes_value=True)
def plan(
    file: Path, target: str, meshes: tuple[str, ...], detailed_exitcode: bool, destroys: bool, wants_json: bool
) -> None:
    """Show what apply would do.  Changes nothing."""
    from monarch_infra import line

    job = _load(file, target)
    made = line.plan(job, meshes=meshes, destroys=destroys)
    _show(made, wants_json)
    if not made.is_empty and not wants_json:
        console.say(f"next: {job.command('destroy' if destroys else 'apply')}\n")
    if detailed_exitcode and not made.is_empty:
        sys.exit(EXIT_CHANGES)


@click.command()
@job_file
@target
@meshes
@yes
@no_input
@click.option("--no-wait", is_flag=True, help="Ask for the hosts and return; a later apply finishes them.")
@wants_json
@not_built("--new")
@not_built("--run", "--replace", "--extend", "--from-pr", "--lock-timeout", "--timeout", takes_value=True)
def apply(
    file: Path, target: str, meshes: tuple[str, ...], yes: bool, no_input: bool, no_wait: bool, wants_json: bool
) -> None:
    """Make the hosts what the job file asks for, after showing the plan and asking once."""
    job = _load(file, target)
    approve = _approval(yes, no_input, wants_json, "Type yes to apply: ", "yes")
    done = _run(job, approve, asks_first=not yes, meshes=meshes, waits=not no_wait)
    _report(job, done, wants_json, shown=not done.plan.is_empty)


@click.command()
@job_file
@target
@meshes
@yes
@no_input
@click.option("--deployment", metavar="ID", help="Remove what carries this id, without any state of it.")
@wants_json
def destroy(
    file: Path,
    target: str,
    meshes: tuple[str, ...],
    yes: bool,
    no_input: bool,
    deployment: str | None,
    wants_json: bool,
) -> None:
    """Remove the hosts of a job and everything made for them."""
    job = _load(file, target)
    name = job.spec.name
    approve = _approval(yes, no_input, wants_json, f"Type the job's name, {name}, to destroy: ", name)
    if deployment is not None:
        from monarch_infra import line, render

        removed = line.sweep(job, deployment, approve)
        if wants_json:
            fields = {"deployment": deployment, "removed": removed}
            console.document({"format_version": render.FORMAT_VERSION, **fields})
        else:
            console.out(f"Removed {removed} hosts; nothing of deployment {deployment} remains.\n")
        return
    done = _run(job, approve, asks_first=not yes, meshes=meshes, destroys=True)
    _report(job, done, wants_json, shown=not done.plan.is_empty)


def _load(file: Path, target: str) -> "Job":
    from monarch_infra import line

    job = line.load(file, target)
    console.warn(job.warnings)
    return job


def _show(made: "Plan", wants_json: bool) -> None:
    from monarch_infra import render

    if wants_json:
        console.document(render.plan_json(made))
    else:
        console.out(render.plan_text(made, console.out_style))


def _approval(yes: bool, no_input: bool, wants_json: bool, question: str, answer: str) -> "Callable[[Plan], bool]":
    """Return what shows a plan and asks; with `--yes` it only shows."""

    def approve(made: "Plan") -> bool:
        if not wants_json:
            _show(made, False)
        if yes:
            return True
        if no_input or wants_json or not console.can_ask:
            raise UsageError(
                "approval needed",
                "There is nobody to ask here, and the plan was not approved in advance.  Nothing was changed.",
                hint="--yes",
            )
        return console.ask(question) == answer

    return approve


def _run(job: "Job", approve: "Callable[[Plan], bool]", **how: Any) -> "Applied":
    from monarch_infra import line
    from monarch_infra.cli.progress import ProgressLines

    stop = line.Stop()
    with _signals(stop):
        return line.apply(job, approve=approve, on_progress=ProgressLines(console), stop=stop, **how)


@contextmanager
def _signals(stop: "Stop") -> Iterator[None]:
    """Let the first Ctrl-C stop gracefully and the second at once."""

    def wish(number: int, frame: Any) -> None:
        # Written past the buffers: the signal may have come while one of them was being filled.
        if not stop.now():
            os.write(2, b"\nstopped at once; the next apply finishes what was begun\n")
            os._exit(EXIT_KILLED)
        with suppress(OSError):
            os.write(2, b"\nstopping; what was made is kept.  Once more: at once\n")

    before = {number: signal.signal(number, wish) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(job: "Job", done: "Applied", wants_json: bool, *, shown: bool) -> None:
    """Say what was done, in words that the same work always gives."""
    from monarch_infra import render

    if wants_json:
        console.document(render.applied_json(done))
        return
    if not shown:
        _show(done.plan, False)
        return
    console.out(render.applied_text(done))
    if done.unfinished:
        console.say(f"next: {job.command('apply')}\n")
    elif done.plan.destroys:
        return
    else:
        where = "" if job.spec.target == "local" else f', target="{job.spec.target}"'
        console.out(f'Connect: InfraJob("{job.file}"{where}).state()\n')


COMMANDS = (init, validate, plan, apply, destroy)
__all__ = ["COMMANDS", "CancelledError"]
