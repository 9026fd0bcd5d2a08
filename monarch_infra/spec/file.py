"""A job file read whole: the job on one target, or everything that is wrong on any.

Joins the reader and the targets; what a setting means is not decided here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from monarch_infra import provider as providers
from monarch_infra.model import JobSpec
from monarch_infra.problem import InfraError, NotFoundError, Problem, Report, SpecError
from monarch_infra.provider import Provider
from monarch_infra.spec import reader
from monarch_infra.spec.form import Target, job_name
from monarch_infra.spec.jobfile import JobFile
from monarch_infra.spec.known import DEFAULT_TARGET, PLANNED_PROVIDERS
from monarch_infra.spec.node import TOP, Entry, Map, Scalar, is_null
from monarch_infra.spec.target import Client, TargetReader, elsewhere, whole
from monarch_infra.spec.walk import BAD, OUT_OF_RANGE, Spot, Walker
from monarch_infra.spec.words import near, settings, shown

TARGETS_MAX = 100
"""Every target is read at every plan, so their number is time."""
HEAD = ("version", "name", "targets")
"""What stands once in a file and no target may change."""
VERSION = 1


@dataclass(frozen=True)
class Loaded:
    """The job on one target, and what is worth telling although it stops nothing."""

    spec: JobSpec
    warnings: tuple[Problem, ...] = ()


class _Installed(Mapping[str, Provider]):
    """The providers at hand; one is imported when it is asked for."""

    def __init__(self) -> None:
        self._names = tuple(providers.names())

    def __getitem__(self, name: str) -> Provider:
        return providers.find(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def installed() -> Mapping[str, Provider]:
    """Return the providers at hand by name."""
    return _Installed()


def load(
    file: Path,
    target: str = DEFAULT_TARGET,
    *,
    python: str,
    monarch: str,
    catalogue: Mapping[str, Provider] | None = None,
) -> Loaded:
    """Return the job that *file* describes on *target*.

    *python* and *monarch* are the client's versions.  What is wrong with other targets only is a warning.

    Raises:
        UsageError: there is no such file.
        NotFoundError: the file has no such target.
        SpecError: the file is wrong; it holds every problem of this target.
    """
    job = _Job(file, catalogue=catalogue, client=Client(python, monarch))
    if target not in job.targets:
        raise job.no_target(target)
    spec, problems = job.read(target)
    problems = job.problems + problems
    if spec is None or any(not problem.is_warning for problem in problems):
        raise SpecError(_sorted(problem for problem in problems if not problem.is_warning))
    warnings = list(problems)
    known = set(problems)
    for name in job.targets:
        if name != target:
            others = [p for p in _sorted(job.read(name)[1]) if not p.is_warning and p not in known]
            warnings += _summed(name, others, file)
    return Loaded(spec, tuple(warnings))


def check(
    file: Path,
    *,
    python: str = "",
    monarch: str = "",
    catalogue: Mapping[str, Provider] | None = None,
) -> Report:
    """Return everything that is wrong with *file* on any target, each thing once, in the order of the file.

    Raises:
        UsageError: there is no such file.
    """
    try:
        job = _Job(file, catalogue=catalogue, client=Client(python, monarch))
    except SpecError as error:
        return Report(list(error.problems))
    problems = list(job.problems)
    if not job.is_newer:
        for name in job.targets:
            problems += job.read(name)[1]
    return Report(_sorted(problems))


def _summed(target: str, problems: list[Problem], file: Path) -> list[Problem]:
    if not problems:
        return []
    first = problems[0]
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    line = f", line {first.where.line}" if first.where is not None else ""
    detail = f"Target `{target}`: {count} (first: {first.summary}{line})."
    summary = "another target cannot be used"
    return [Problem(summary, detail, f"monarch-infra validate {file}", first.where, is_warning=True)]


def _sorted(problems: Iterable[Problem]) -> list[Problem]:
    """Return each of *problems* once, in the order of the file; what several targets say of one place is one."""
    once: dict[object, Problem] = {}
    for problem in problems:
        where = problem.where
        once.setdefault((problem.summary, where.line, where.column) if where else problem, problem)
    return sorted(once.values(), key=lambda p: (p.where.line, p.where.column) if p.where else (0, 0))


class _Job:
    """The parts of a job file: its head, the rest, and an overlay for each target."""

    def __init__(self, file: Path, *, catalogue: Mapping[str, Provider] | None, client: Client) -> None:
        self.file = file
        self._client = client
        self._catalogue = installed() if catalogue is None else catalogue
        self._source, root = reader.read(file)
        walker = Walker(self._source, providers=(), elsewhere=self._hint)
        self.is_newer = False
        self.targets: dict[str, Entry | None] = {DEFAULT_TARGET: None}
        self._name: str | None = None
        self._base = Map(root.place, {})
        self._version(root, walker)
        if not self.is_newer:
            known = walker.known(JobFile, root, Spot(file.name, TOP))
            self._base = known.without(*HEAD)
            self._name = self._job_name(known.entries.get("name"), walker)
            self._targets(known.entries.get("targets"), walker)
        self._read: dict[str, tuple[JobSpec | None, list[Problem]]] = {}

    @property
    def problems(self) -> list[Problem]:
        """What is wrong whatever the target."""
        return self._source.problems

    def read(self, target: str) -> tuple[JobSpec | None, list[Problem]]:
        """Return the job on *target*, and what is wrong with it there."""
        if self.is_newer:
            return None, []
        if target not in self._read:
            one = TargetReader(self._source, target, catalogue=self._catalogue, client=self._client)
            spec = one.read(self._base, self.targets[target], self._name)
            self._read[target] = spec, one.source.problems
        return self._read[target]

    def no_target(self, name: str) -> InfraError:
        """Return the error for a target that the file does not have."""
        meshes: set[str] = set()
        for overlay in (None, *self.targets.values()):
            part = self._base if overlay is None else overlay.node
            if isinstance(part, Map) and (found := whole(part).map("meshes")) is not None:
                meshes |= set(found.entries)
        listed = ", ".join(f"`{each}`" for each in self.targets)
        if name in meshes:
            detail, hint = f"`{name}` is a mesh; the targets here are {listed}.", f"use `--mesh {name}`"
        else:
            detail = f"`{self.file}` has no target `{shown(name)}`; it has {listed}."
            hint = near(name, self.targets) or f"add it under `targets`, or use one of {listed}"
        return NotFoundError("no such target", detail, hint=hint)

    def _hint(self, key: str) -> str:
        if key in self._catalogue or key in PLANNED_PROVIDERS:
            return f"put `{key}` under a target or under a mesh"
        return elsewhere(key)

    def _version(self, root: Map, walker: Walker) -> None:
        entry = root.entries.get("version")
        if entry is None or is_null(entry.node):
            detail = "The job file has no `version`, which must be given."
            place = entry.place if entry is not None else TOP
            self._source.tell(place, "version missing", detail, f"begin the file with `version: {VERSION}`")
            return
        value = entry.node.value if isinstance(entry.node, Scalar) else None
        if isinstance(value, int) and not isinstance(value, bool) and value > VERSION:
            self.is_newer = True
            # All else may mean something else in a newer version.
            detail = f"The file has version {value}; this release reads version {VERSION}."
            self._source.problems.clear()
            self._source.tell(entry.node.place, "job file too new", detail, "pip install --upgrade monarch-infra")
            return
        walker.field(settings(JobFile)["version"], entry.node, Spot("version", entry.place))

    def _job_name(self, entry: Entry | None, walker: Walker) -> str | None:
        if entry is not None and not is_null(entry.node):
            value = walker.field(settings(JobFile)["name"], entry.node, Spot("name", entry.place))
            return None if value is BAD else str(value)
        directory = self.file.absolute().parent.name
        default = directory if self.file.name == "job.yaml" else f"{directory}-{self.file.stem}"
        name = job_name(default)
        if not job_name(directory):
            detail = f"Without `name` the job is called after its directory, but `{shown(directory)}` makes no name."
            self._source.tell(TOP, "job name missing", detail, "add a line such as `name: llama-rl`")
            return None
        return name

    def _targets(self, entry: Entry | None, walker: Walker) -> None:
        if entry is None or is_null(entry.node):
            return
        if not isinstance(entry.node, Map):
            walker.field(settings(JobFile)["targets"], entry.node, Spot("targets", entry.place))
            return
        if len(entry.node.entries) > TARGETS_MAX:
            detail = f"The file has {len(entry.node.entries)} targets; {TARGETS_MAX} is the most."
            self._source.tell(entry.place, OUT_OF_RANGE, detail, "use several job files")
            return
        for name, overlay in entry.node.entries.items():
            if name.startswith("x-") or not walker.text(Target, name, Spot(name, overlay.place)):
                continue
            if isinstance(overlay.node, Map) or is_null(overlay.node):
                self.targets[name] = overlay
            else:
                inside = get_args(settings(JobFile)["targets"].annotation)[1]
                walker.value(inside, overlay.node, Spot(name, overlay.place))
                self.targets.setdefault(name, None)
