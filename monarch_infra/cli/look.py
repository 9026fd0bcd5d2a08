"""status, output, ping, schema: what stands, for people and for programs.  They change nothing."""

from pathlib import Path

import click

from monarch_infra.cli.console import console
from monarch_infra.cli.options import job_file, meshes, not_built, target, wants_json
from monarch_infra.problem import NotFoundError, NotReadyError


@click.command()
@job_file
@target
@wants_json
@not_built("--watch", "--cached")
def status(file: Path, target: str, wants_json: bool) -> None:
    """Show the hosts of a job as they are now."""
    from monarch_infra import line, render

    job = line.load(file, target)
    standing = line.status(job)
    if wants_json:
        console.document(render.status_json(standing))
    else:
        console.out(render.status_text(standing, console.out_style))


@click.command()
@click.argument("field", required=False)
@click.option("-f", "--file", type=click.Path(path_type=Path), default="job.yaml", envvar="MONARCH_INFRA_JOB")
@target
@wants_json
def output(field: str | None, file: Path, target: str, wants_json: bool) -> None:
    """Print the outputs: the hosts that a Monarch client connects to.  FIELD is a dotted path into them."""
    import json

    from monarch_infra import line

    job = line.load(file, target)
    outputs = job.state.outputs
    if outputs is None:
        raise NotFoundError(
            "nothing was applied",
            f"{job.spec.name} has no hosts on {job.spec.target}.",
            next_command=job.command("apply"),
        )
    value = outputs.model_dump(mode="json")
    for part in (field or "").split(".") if field else ():
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            known = ", ".join(value) if isinstance(value, dict) else "its numbered entries"
            raise NotFoundError("no such output", f"There is no `{part}` here; there is {known}.") from error
    text = value if isinstance(value, str) and not wants_json else json.dumps(value, indent=2)
    console.out(f"{text}\n")


@click.command()
@job_file
@target
@meshes
@wants_json
@not_built("--direct")
@not_built("--gateway", takes_value=True)
def ping(file: Path, target: str, meshes: tuple[str, ...], wants_json: bool) -> None:
    """Make a real actor call to every host and print who answers."""
    from monarch_infra import connect, line, render

    job = line.load(file, target)
    outputs = job.state.outputs
    if outputs is None or not any(mesh.hosts for mesh in outputs.meshes.values()):
        raise NotReadyError(
            "no host to call", f"{job.spec.name} has no hosts on {job.spec.target}.", next_command=job.command("apply")
        )
    line.choose(job, meshes)
    try:
        answers = connect.ping(outputs, meshes or None)
    except NotReadyError as error:
        error.next_command = error.next_command or job.command("plan")
        raise
    if wants_json:
        console.document(render.ping_json(answers))
    else:
        console.out(render.ping_text(answers))


@click.command()
def schema() -> None:
    """Print the JSON Schema of the job file."""
    from monarch_infra import spec

    console.document(spec.schema())


COMMANDS = (status, output, ping, schema)
