"""Arguments and flags that several commands share, and those that are not built yet."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from monarch_infra.problem import UsageError

F = TypeVar("F", bound=Callable[..., Any])

job_file = click.argument(
    "file", type=click.Path(path_type=Path), default="job.yaml", envvar="MONARCH_INFRA_JOB", metavar="[FILE]"
)
wants_json = click.option(
    "--json", "wants_json", is_flag=True, envvar="MONARCH_INFRA_JSON", help="Print one JSON document."
)
meshes = click.option(
    "--mesh",
    "meshes",
    multiple=True,
    envvar="MONARCH_INFRA_MESH",
    metavar="NAME",
    callback=lambda ctx, parameter, value: _mesh_names(value),
    help="Only this mesh; may be given more than once.",
)


def target(command: F) -> F:
    """Let a command be told where the job runs, and what every such command will take one day."""
    option = click.option(
        "-t",
        "--target",
        default="local",
        envvar="MONARCH_INFRA_TARGET",
        show_default=True,
        help="Where the job runs: a target of the job file; `local` always exists.",
    )
    return option(not_built("-q", "-v")(not_built("--json-into", takes_value=True)(command)))


def _mesh_names(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if "[" in value:
            raise UsageError(
                "not built yet", f"`--mesh {value}`: single ranks cannot be chosen yet.", hint="name the whole mesh"
            )
    return values


def not_built(*flags: str, takes_value: bool = False) -> Callable[[F], F]:
    """Declare flags that a reader of the documents may expect; naming one says that it is not built yet."""

    def refuse(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value:
            raise UsageError("not built yet", f"{parameter.opts[0]} is planned and does nothing yet.")

    def declare(command: F) -> F:
        for flag in flags:
            command = click.option(
                flag, is_flag=not takes_value, hidden=True, expose_value=False, callback=refuse, default=None
            )(command)
        return command

    return declare
