"""Every setting of a job file: its type, its default and its description.

The one definition: the checks, the JSON Schema and `docs/job-file.md` are all made from these records.  What is
planned stands here too, marked as such, so that it is refused by its own name.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from monarch_infra.model import HOSTS_MAX, MESHES_MAX, Record
from monarch_infra.spec import form
from monarch_infra.spec.form import Later, Planned

GPUS_MAX = 128
"""Per host; the largest machine of today has 16."""
CPUS_MAX = 4096
TOP_LEVEL = "the top level"

Hosts = Annotated[int, Field(ge=1, le=HOSTS_MAX), Later(as_map="{min, want, max}")]


class Block(Record):
    """A map of settings; `x-…` in it is ignored."""

    model_config = ConfigDict(
        use_attribute_docstrings=True,
        json_schema_extra={"patternProperties": {"^x-": {"description": "Ignored: a place for anchors and notes."}}},
    )

    spoken: ClassVar[str] = ""
    """How a message begins that says what this map has not: a subject and `has` or `have`."""
    path: ClassVar[str] = ""
    """Where the map stands, for readers."""
    takes_providers: ClassVar[bool] = False
    """A map under a provider's name is that provider's own settings."""


class ResourcesBlock(Block):
    """What each host of a mesh should have.  A provider names what it cannot honour in the plan."""

    spoken: ClassVar[str] = "A mesh's resources have"
    path: ClassVar[str] = "meshes.<name>.resources"

    accelerators: form.Accelerators | None = None
    """Type and count of accelerators per host, as `"H100:8"`; upper and lower case are the same."""
    gpus: Annotated[int, Field(ge=1, le=GPUS_MAX)] | None = None
    """Number of GPUs per host, where the partition or pool decides their type."""
    cpus: Annotated[int, Field(ge=1, le=CPUS_MAX)] | None = None
    """CPUs per host."""
    memory: form.Quantity | None = None
    """Memory per host, as `64Gi`."""
    disk: form.Quantity | None = None
    """Disk per host, as `200Gi`."""
    instance_type: form.MachineName | None = None
    """The exact machine type, by its provider's name."""
    fabric: Literal["required", "preferred", "off"] | None = None
    """Whether the hosts need the fast network between machines."""


class MeshBlock(Block):
    """A group of equal hosts.  An integer is short for `{hosts: …}`."""

    spoken: ClassVar[str] = "A mesh has"
    path: ClassVar[str] = "meshes.<name>"
    takes_providers: ClassVar[bool] = True

    hosts: Annotated[Hosts, Field(examples=[2])]
    """How many hosts."""
    env: dict[form.EnvName, form.EnvValue] = {}
    """Environment of the worker and its processes, laid over `runtime.env`."""
    labels: dict[form.LabelName, form.LabelValue] = {}
    """Tags on the mesh's hosts, laid over the job's."""
    resources: ResourcesBlock = ResourcesBlock()
    """What each host should have."""
    on_partial: Literal["remove", "keep"] = "remove"
    """What to do with the hosts that came when the rest of those asked for did not."""
    on_loss: Annotated[Literal["replace"], Later(choices=("report", "fail"))] = "replace"
    """What a lost host means: `replace` makes re-making it a line of the next plan."""
    provider: str | None = None
    """Must be the target's provider; there for jobs that will mix them."""
    capacity: Planned = None
    """Kinds of capacity to try in turn: `reserved`, `on-demand`, `spot`."""
    health: Planned = None
    """Checks that a host must pass before it counts."""


class RuntimeBlock(Block):
    """What runs on the hosts."""

    spoken: ClassVar[str] = "`runtime` has"
    path: ClassVar[str] = "runtime"

    env: dict[form.EnvName, form.EnvValue] = {}
    """Environment of every worker and its processes; a mesh's own is laid over it."""
    python: Planned = None
    """Version of Python on the hosts; today it is the client's."""
    monarch: Planned = None
    """Version of Monarch on the hosts; today it is the client's."""
    image: Planned = None
    """Container or machine image."""
    pip: Planned = None
    """Packages to install before the worker starts."""
    setup: Planned = None
    """Script to run before the worker starts."""
    secrets: Planned = None
    """Names of secrets and where to get them."""


class TimeoutsBlock(Block):
    """How long to wait."""

    spoken: ClassVar[str] = "`timeouts` has"
    path: ClassVar[str] = "timeouts"

    ready: form.Duration = "15m"
    """How long an apply waits until all hosts serve."""
    boot: Planned = None
    """How long one host may take to boot."""
    spawn: Planned = None
    """How long spawning processes may take."""
    failure_detection: Planned = None
    """After how long without an answer a host counts as lost."""


class Settings(Block):
    """What a job file says once and a target may say differently."""

    labels: dict[form.LabelName, form.LabelValue] = {}
    """Tags on everything that is made."""
    hosts: Hosts | None = None
    """Short for one mesh `workers` with as many hosts; excludes `meshes`."""
    meshes: Annotated[
        dict[form.Mesh, Annotated[Hosts, Field(title="Hosts")] | MeshBlock], Field(max_length=MESHES_MAX)
    ] = {}
    """The meshes by name, each an attribute of the `JobState`; their order has no meaning."""
    runtime: RuntimeBlock = RuntimeBlock()
    """What runs on the hosts."""
    timeouts: TimeoutsBlock = TimeoutsBlock()
    """How long to wait."""
    workdir: Planned = None
    """Directory to bring to the hosts."""
    mounts: Planned = None
    """Directories shared between client and hosts."""
    files: Planned = None
    """Buckets and paths to have on the hosts."""
    telemetry: Planned = None
    """Monarch's telemetry and dashboard."""
    admin: Planned = None
    """Monarch's admin server."""
    lifetime: Planned = None
    """When the hosts end by themselves."""
    protect: Planned = None
    """Refuse to destroy or replace."""
    checkpoint: Planned = None
    """How often the job writes a checkpoint, and where."""
    limits: Planned = None
    """What the job may cost."""
    moved: Planned = None
    """Meshes that were renamed."""
    transform: Planned = None
    """Steps to run on the job before it is applied."""
    tasks: Planned = None
    """Steps to run on the hosts before the job is ready."""


class TargetBlock(Settings):
    """One place to run: a JSON merge patch (RFC 7396) over the rest of the job file.

    Maps merge, lists and single values replace, and null removes.
    """

    spoken: ClassVar[str] = "A target has"
    path: ClassVar[str] = "targets.<name>"
    takes_providers: ClassVar[bool] = True

    provider: str | None = None
    """Where its hosts come from; only the target that always exists needs none."""


class Head(Block):
    """What a job file says once, and no target may change."""

    version: Annotated[Literal[1], Field(examples=[1])]
    """Format of this file."""
    name: form.Job | None = None
    """Name of the job; left out, the directory's name, with `-<file stem>` unless the file is `job.yaml`."""


class JobFile(Settings, Head):
    """A job file of monarch-infra."""

    spoken: ClassVar[str] = "The job file has"
    path: ClassVar[str] = TOP_LEVEL

    targets: dict[form.Target, TargetBlock | None] = {}
    """Where the job may run, by name, chosen with `--target`."""


BLOCKS: tuple[type[Block], ...] = (JobFile, MeshBlock, ResourcesBlock, RuntimeBlock, TimeoutsBlock, TargetBlock)
"""Every map of settings, in the order of the docs."""
