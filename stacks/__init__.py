"""The Pulumi program: a job becomes one stack of a Deployment, a Site and a HostGroup per mesh.

It declares what the job file asks for and never looks at the live world.  One module per provider beside this
one says what its part of the stack is given; the engine and plain `pulumi` run the same program.
"""

from collections.abc import Callable
from typing import Any

import pulumi

from monarch_infra import provider as catalogue
from monarch_infra.model import JobSpec, outputs_text


class _Resource(pulumi.CustomResource):
    """A resource of the plug-in `monarch`."""

    def __init__(self, kind: str, name: str, inputs: dict[str, Any], outputs: tuple[str, ...]) -> None:
        # No version: the engine would write it into every resource's provider and rewrite them at each release.
        super().__init__(f"monarch:{kind}", name, {**inputs, **dict.fromkeys(outputs)})


class Deployment(_Resource):
    """One life of the stack: its id, which every made thing carries, its key and its certificate authority."""

    def __init__(self, spec: JobSpec) -> None:
        inputs = {"job": spec.name, "target": spec.target, "provider": spec.provider, "options": spec.options}
        super().__init__("index:Deployment", "deployment", inputs, ("key", "ca_certificate", "ca_key"))


class HostSite(_Resource):
    """What the meshes of the stack share, and the provider's eye for strays."""

    ground: pulumi.Output[dict[str, Any]]

    def __init__(self, spec: JobSpec, deployment: Deployment, options: dict[str, Any]) -> None:
        self.identity = {
            "deployment": deployment.id,
            "job": spec.name,
            "target": spec.target,
            "provider": spec.provider,
            "options": options,
        }
        meshes = {mesh.name: {"hosts": mesh.hosts, "made_from": mesh.made_from} for mesh in spec.meshes}
        super().__init__(f"{spec.provider}:Site", "site", {**self.identity, "meshes": meshes}, ("ground", "strays"))


class HostGroup(_Resource):
    """The hosts of one mesh."""

    members: pulumi.Output[str]

    def __init__(self, name: str, provider: str, site: HostSite, inputs: dict[str, Any]) -> None:
        shared = {"site": site.identity, "ground": site.ground}
        outputs = ("members", "unfinished", "surplus", "generations")
        super().__init__(f"{provider}:HostGroup", name, {**inputs, **shared}, outputs)


def compile(spec: JobSpec) -> Callable[[], None]:
    """Return the program of *spec*."""
    part = catalogue.stack_module(spec.provider)

    def program() -> None:
        deployment = Deployment(spec)
        site = HostSite(spec, deployment, part.site(spec))
        groups = {mesh.name: HostGroup(mesh.name, spec.provider, site, part.group(spec, mesh)) for mesh in spec.meshes}
        # One text, in the published form: `pulumi stack output outputs > outputs.json` is what a client reads.
        members = {name: group.members for name, group in groups.items()}
        exported = pulumi.Output.all(deployment=deployment.id, members=members)
        pulumi.export("outputs", exported.apply(lambda made: outputs_text(spec, made["deployment"], made["members"])))

    return program
