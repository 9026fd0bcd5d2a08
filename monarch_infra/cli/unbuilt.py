"""Commands that are planned: naming one says so, instead of "no such command"."""

import click

from monarch_infra.problem import UsageError

NAMES = (
    "show",
    "drift",
    "logs",
    "ssh",
    "exec",
    "run",
    "sync",
    "open",
    "reap",
    "scale",
    "review",
    "unlock",
    "history",
    "import",
    "convert",
    "export",
    "credentials",
    "renew",
    "ps",
    "doctor",
    "offers",
    "completion",
    "jobspec",
    "reconcile",
)


def _command(name: str) -> click.Command:
    @click.command(name, hidden=True, context_settings={"ignore_unknown_options": True}, add_help_option=False)
    @click.argument("rest", nargs=-1, type=click.UNPROCESSED)
    def refuse(rest: tuple[str, ...]) -> None:
        raise UsageError("not built yet", f"`monarch-infra {name}` is planned and does nothing yet.")

    return refuse


COMMANDS = tuple(_command(name) for name in NAMES)
