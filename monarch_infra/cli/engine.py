"""engine install and version: what the tool itself consists of."""

import click

from monarch_infra import __version__
from monarch_infra.cli.console import console
from monarch_infra.cli.options import wants_json
from monarch_infra.problem import UsageError

PACKAGES = ("torchmonarch", "pulumi", "pulumi-kubernetes", "boto3", "google-cloud-compute", "click", "pytest")


@click.group()
def engine() -> None:
    """The Pulumi engine that plans and applies."""


@engine.command()
@click.argument("part", required=False)
@click.option("--force", is_flag=True, help="Get it again even if it is there.")
def install(part: str | None, force: bool) -> None:
    """Get the pinned engine: from PATH, the official release, or its source."""
    from monarch_infra.engine import install as installer

    if part is not None:
        raise UsageError("not built yet", f"`engine install {part}` is planned and does nothing yet.")
    binary = installer.install(lambda text: console.say(f"  {text}\n"), force=force)
    console.out(f"engine {installer.PULUMI_VERSION}: {binary}\n")


@click.command()
@wants_json
def version(wants_json: bool) -> None:
    """Print the versions of the tool, its engine and its packages."""
    import importlib.metadata
    import platform

    from monarch_infra import render
    from monarch_infra.engine import install as installer

    binary = installer.find()
    packages: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = None
    document = {
        "format_version": render.FORMAT_VERSION,
        "monarch_infra": __version__,
        "python": platform.python_version(),
        "engine": {"version": installer.PULUMI_VERSION, "path": str(binary) if binary else None},
        "packages": packages,
    }
    if wants_json:
        console.document(document)
        return
    place = str(binary) if binary else "not installed: monarch-infra engine install"
    lines = [f"monarch-infra {__version__}", f"python {platform.python_version()}"]
    lines += [f"engine pulumi {installer.PULUMI_VERSION} ({place})"]
    lines += [f"{name} {found or 'not installed'}" for name, found in packages.items()]
    console.out("\n".join(lines) + "\n")


COMMANDS = (engine, version)
