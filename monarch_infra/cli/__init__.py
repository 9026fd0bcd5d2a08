"""The command `monarch-infra`: reads arguments, calls one function, prints.

Importing it loads click and nothing heavy; what a command needs is imported when it runs.
"""

import gc
import os
import sys
from collections.abc import Sequence

import click

from monarch_infra import __version__
from monarch_infra.cli import engine, job, look, unbuilt
from monarch_infra.cli.console import console
from monarch_infra.problem import EXIT_OK, BugError, CancelledError, InfraError, UsageError

YES = ("1", "true", "t", "yes", "y", "on")
"""What click takes for yes in a variable; a document is owed before click has read any."""

EXIT_READER_GONE = 128 + 13
"""As the shell counts a death by SIGPIPE."""

GARBAGE_MIN = 50_000
"""Objects before the first collection.  Importing makes hundreds of thousands and no garbage; at the default of 700
looking for it is a tenth of a short command."""

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Commands(click.Group):
    """Commands in the order a newcomer meets them, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_Commands, context_settings=SETTINGS)
@click.version_option(__version__, "-V", "--version", message="monarch-infra %(version)s")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    envvar="MONARCH_INFRA_COLOR",
    help="Colour the output; auto looks at the terminal and NO_COLOR.",
)
def cli(color: str) -> None:
    """Plan and apply the hosts of PyTorch Monarch jobs.

    A job file names meshes of hosts.  `plan` shows what would change, `apply` makes it so, and
    `InfraJob("job.yaml").state()` gives a Monarch program the hosts.
    """
    console.choose_colour(color)


for _command in (*job.COMMANDS, *look.COMMANDS, *engine.COMMANDS, *unbuilt.COMMANDS):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with the code that its cause decides."""
    gc.set_threshold(GARBAGE_MIN)
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    console.wants_json = "--json" in arguments or os.environ.get("MONARCH_INFRA_JSON", "").lower() in YES
    try:
        code = _code(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone, as `| head` does; the interpreter must not say so again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_READER_GONE
    sys.exit(code)


def _code(arguments: Sequence[str]) -> int:
    """Run the command, say what went wrong, and return the exit code."""
    try:
        # Not `cli.main`, which answers a reader that has gone with 1, as if the command had failed.
        with cli.make_context("monarch-infra", list(arguments)) as context:
            cli.invoke(context)
        return EXIT_OK
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        console.say(f"{error.format_message()}\n")
        return UsageError.code
    except click.ClickException as error:
        return console.fail(_usage(error))
    except (click.Abort, KeyboardInterrupt):
        return console.fail(CancelledError("stopped"))
    except InfraError as error:
        return console.fail(error)
    except BrokenPipeError:
        raise
    except Exception as error:  # the last resort: a traceback is for us, not for the user
        return console.fail(_bug(error))


def _usage(error: click.ClickException) -> UsageError:
    if isinstance(error, click.NoSuchOption) and error.ctx:
        # A flag that is not built is declared, but nobody is led to it.
        hidden = {name for each in error.ctx.command.params if getattr(each, "hidden", False) for name in each.opts}
        near = [name for name in error.possibilities or () if name not in hidden]
        error = click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
    command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "monarch-infra"
    return UsageError("wrong command line", error.format_message(), hint=f"{command} --help")


def _bug(error: Exception) -> BugError:
    import platform
    import traceback

    if os.environ.get("MONARCH_INFRA_TRACEBACK"):
        traceback.print_exc()
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return BugError(
        "something unexpected happened",
        f"{type(error).__name__}: {error} (at {os.path.basename(frame.filename)}:{frame.lineno}).\n"
        f"monarch-infra {__version__}, Python {platform.python_version()}, {platform.platform()}.\n"
        "This is a bug in monarch-infra.",
        hint="run it again with MONARCH_INFRA_TRACEBACK=1 and report what it prints",
    )
