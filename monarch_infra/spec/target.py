"""One target of a job file: the rest of the file with the target's overlay on it, as a `JobSpec`.

Asks the target's provider about its own settings and about each mesh; names none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from monarch_infra.model import JobSpec, Json, MeshSpec, Resources
from monarch_infra.problem import InfraError, Problem
from monarch_infra.provider import Provider
from monarch_infra.spec.form import seconds
from monarch_infra.spec.jobfile import BLOCKS, TOP_LEVEL, MeshBlock, Settings, TargetBlock
from monarch_infra.spec.known import DEFAULT_MESH, DEFAULT_TARGET, PLANNED_PROVIDERS
from monarch_infra.spec.node import TOP, Entry, Map, Node, Place, Scalar, Source, is_null, merge
from monarch_infra.spec.walk import MISSING, NOT_ALLOWED, NOT_BUILT, Spot, Walker, validated
from monarch_infra.spec.words import near, settings, shown

CONFLICT = "settings exclude each other"


@dataclass(frozen=True)
class Client:
    """What the job file says nothing of: the versions on the machine that plans."""

    python: str
    monarch: str


@cache
def _owners() -> dict[str, list[str]]:
    owners: dict[str, list[str]] = {}
    for block in BLOCKS:
        for key in settings(block):
            # A target may say what the top level says; to name it as well would only confuse.
            if block is not TargetBlock or key not in settings(Settings):
                owners.setdefault(key, []).append(block.path)
    return owners


def elsewhere(key: str) -> str:
    """Return a hint if the setting *key* exists, but in another map."""
    paths = ["at the top level" if path == TOP_LEVEL else f"under `{path}`" for path in _owners().get(key, [])]
    return f"`{key}` belongs {' or '.join(paths)}" if paths else ""


def whole(settings_map: Map, *, under: Map | None = None) -> Map:
    """Return *settings_map* with its short forms written out, so that merging sees one form only.

    `hosts: 2` at the top is a mesh `workers`, and a mesh that is a number is a map with `hosts`.  A mesh of which
    nothing is said is an empty map, except in an overlay, where null removes it; *under* is what it lies over.
    """
    entries = dict(settings_map.entries)
    hosts = entries.pop("hosts", None)
    meshes = entries.get("meshes")
    if hosts is not None and meshes is None and not is_null(hosts.node):
        mesh = Map(hosts.place, {"hosts": hosts})
        entries["meshes"] = Entry(hosts.place, Map(hosts.place, {DEFAULT_MESH: Entry(hosts.place, mesh)}))
    elif meshes is not None and isinstance(meshes.node, Map):
        written = {
            name: Entry(entry.place, _mesh(entry, under is not None)) for name, entry in meshes.node.entries.items()
        }
        entries["meshes"] = Entry(meshes.place, Map(meshes.node.place, written))
    if hosts is not None and is_null(hosts.node) and under is not None and "hosts" in under.entries:
        given = entries.get("meshes")
        others = given.node.entries if given is not None and isinstance(given.node, Map) else {}
        entries["meshes"] = Entry(hosts.place, Map(hosts.place, {DEFAULT_MESH: hosts} | others))
    return Map(settings_map.place, entries)


def _mesh(entry: Entry, is_overlay: bool) -> Node:
    node = entry.node
    if is_null(node) and not is_overlay:
        return Map(entry.place, {})
    is_count = isinstance(node, Scalar) and isinstance(node.value, int) and not isinstance(node.value, bool)
    return Map(node.place, {"hosts": Entry(entry.place, node)}) if is_count else node


class TargetReader:
    """Reads one target."""

    def __init__(
        self,
        source: Source,
        name: str,
        *,
        catalogue: Mapping[str, Provider],
        client: Client,
    ) -> None:
        self.source = source.fresh()
        self._name = name
        self._catalogue = catalogue
        self._client = client
        names = {*catalogue, *PLANNED_PROVIDERS}
        self._walker = Walker(self.source, providers=names, elsewhere=elsewhere)

    def read(self, base: Map, overlay: Entry | None, job: str | None) -> JobSpec | None:
        """Return the job on this target, or None after telling what is wrong with it.

        *base* is the file without `version`, `name` and `targets`, and holds known settings only.
        """
        place = overlay.place if overlay is not None else TOP
        patch = overlay.node if overlay is not None and isinstance(overlay.node, Map) else Map(place, {})
        patch = self._walker.known(TargetBlock, patch, Spot(self._name, place))
        self._hosts_or_meshes(base, patch)
        merged = cast(Map, merge(whole(base), whole(patch, under=base)))
        provider_name = self._provider_name(patch, place)
        values = self._walker.record(TargetBlock, merged, Spot(self._name, place))
        provider = self._provider(provider_name, patch.entries.get("provider"))
        meshes = self._meshes(merged, place)
        self._mesh_providers(meshes, provider_name)
        self._accelerators(values, meshes)
        self._blocks(merged, meshes, provider_name)
        options = self._options(provider, provider_name, merged, meshes, place)
        if any(not problem.is_warning for problem in self.source.problems) or provider is None or job is None:
            return None
        return self._spec(job, provider_name, provider, TargetBlock.model_validate(values), options, meshes)

    def _hosts_or_meshes(self, base: Map, patch: Map) -> None:
        def given(part: Map, key: str) -> Entry | None:
            entry = part.entries.get(key)
            return None if entry is None or is_null(entry.node) else entry

        for part, others in ((base, (base,)), (patch, (patch, base))):
            hosts = given(part, "hosts")
            if hosts is not None and any(given(other, "meshes") for other in others):
                detail = f"`hosts` is short for one mesh `{DEFAULT_MESH}`, but `meshes` is given too."
                hint = f"remove `hosts`, or write it as a mesh: `{DEFAULT_MESH}: …`"
                self.source.tell(hosts.place, CONFLICT, detail, hint)

    def _provider_name(self, patch: Map, place: Place) -> str:
        entry = patch.entries.get("provider")
        given = entry is not None and not is_null(entry.node)
        if self._name == DEFAULT_TARGET:
            if given and entry is not None and isinstance(entry.node, Scalar) and entry.node.value != DEFAULT_TARGET:
                detail = f"The target `{DEFAULT_TARGET}` always has the provider `{DEFAULT_TARGET}`."
                hint = "give a target with another provider another name"
                self.source.tell(entry.node.place, NOT_ALLOWED, detail, hint)
            return DEFAULT_TARGET
        if not given:
            detail = f"The target `{self._name}` has no `provider`, which must be given."
            hint = f"add `provider: {DEFAULT_TARGET}`" if not self._planned(self._name) else ""
            self.source.tell(place, MISSING, detail, hint or f"add `provider: {self._name}`")
        elif entry is not None and isinstance(entry.node, Scalar) and isinstance(entry.node.value, str):
            return entry.node.value
        return ""

    def _planned(self, name: str) -> bool:
        return name in PLANNED_PROVIDERS and name not in self._catalogue

    def _provider(self, name: str, entry: Entry | None) -> Provider | None:
        place = entry.node.place if entry is not None else TOP
        if not name:
            return None
        built = ", ".join(f"`{each}`" for each in self._catalogue)
        if name in self._catalogue:
            return self._found(name, place)
        if self._planned(name):
            detail = f"The provider `{name}` is planned, but this release does not have it."
            self.source.tell(place, NOT_BUILT, detail, f"for now there is {built}")
        else:
            detail = f"No provider is called `{shown(name)}`; there is {built}."
            hint = near(name, [*self._catalogue, *PLANNED_PROVIDERS]) or "install the package that provides it"
            self.source.tell(place, "provider not found", detail, hint)
        return None

    def _found(self, name: str, place: Place) -> Provider | None:
        try:
            return self._catalogue[name]
        except InfraError as error:
            where = self.source.where(place)
            self.source.problems += [Problem(p.summary, p.detail, p.hint, where) for p in error.problems]
            return None

    def _meshes(self, merged: Map, place: Place) -> dict[str, Entry]:
        entry = merged.entries.get("meshes")
        if entry is not None and not is_null(entry.node) and not isinstance(entry.node, Map):
            return {}
        meshes = merged.map("meshes")
        present = dict(meshes.present()) if meshes is not None else {}
        if not present:
            place = entry.place if entry is not None else place
            self.source.tell(place, MISSING, "The job has no mesh.", "add `hosts: 2`, or name meshes under `meshes`")
        return present

    def _mesh_providers(self, meshes: Mapping[str, Entry], provider_name: str) -> None:
        for entry in meshes.values():
            own = entry.node.entries.get("provider") if isinstance(entry.node, Map) else None
            if own is None or not isinstance(own.node, Scalar) or not isinstance(own.node.value, str):
                continue
            if provider_name and own.node.value != provider_name:
                detail = f"A mesh's provider must be its target's, which is `{provider_name}` on `{self._name}`."
                self.source.tell(own.node.place, NOT_ALLOWED, detail, "remove `provider` from the mesh")

    def _accelerators(self, values: Json, meshes: Mapping[str, Entry]) -> None:
        for name, mesh in values.get("meshes", {}).items():
            resources = mesh.get("resources", {}) if isinstance(mesh, dict) else {}
            accelerators, gpus = resources.get("accelerators"), resources.get("gpus")
            if accelerators is None or gpus is None or int(accelerators.rpartition(":")[2]) == gpus:
                continue
            inside = meshes[name].node
            block = inside.map("resources") if isinstance(inside, Map) else None
            if block is not None:
                detail = f"`accelerators: {accelerators}` and `gpus: {gpus}` disagree on the number per host."
                self.source.tell(block.entries["gpus"].place, CONFLICT, detail, "remove `gpus`")

    def _blocks(self, merged: Map, meshes: Mapping[str, Entry], own: str) -> None:
        """Check the form of what stands under other providers' names; it has no effect on this target."""
        holders = [merged, *(entry.node for entry in meshes.values() if isinstance(entry.node, Map))]
        for name in self._catalogue:
            for holder in holders:
                block = holder.map(name)
                if block is None or name == own or name in settings(TargetBlock):
                    continue
                entry = holder.entries[name]
                provider = self._found(name, entry.place)
                if provider is not None:
                    self._walker.record(provider.Options, block, Spot(name, entry.place), is_partial=True)

    def _options(
        self, provider: Provider | None, name: str, merged: Map, meshes: Mapping[str, Entry], place: Place
    ) -> dict[str, dict[str, Any]]:
        """Return the provider's own settings by mesh, and under the empty name those of the whole target."""
        if provider is None:
            return {}
        whole_block = merged.entries.get(name)
        if whole_block is not None and not isinstance(whole_block.node, Map) and not is_null(whole_block.node):
            return {}
        base = whole_block.node if whole_block is not None and isinstance(whole_block.node, Map) else Map(place, {})
        at = whole_block.place if whole_block is not None else place
        told = len(self.source.problems)
        options: dict[str, dict[str, Any]] = {}
        # What a mesh alone gives may be required, so nothing is missed in the target's own part.
        values = self._walker.record(provider.Options, base, Spot(name, at), is_partial=True)
        shared: dict[str, Any] | None = None
        for mesh, entry in meshes.items():
            own = entry.node.entries.get(name) if isinstance(entry.node, Map) else None
            if own is not None and not isinstance(own.node, Map) and not is_null(own.node):
                continue
            if own is not None and isinstance(own.node, Map):
                options[mesh] = self._validated(provider, merge(base, own.node), Spot(name, own.place))
                continue
            if shared is None:
                # A mesh without a block of its own stands for all of them.
                spot = Spot(name, at if whole_block is not None else entry.place)
                shared = self._validated(provider, base, spot)
            options[mesh] = shared
        options[""] = shared if shared is not None else values
        # A mesh's block is read with the target's under it: what is wrong there is told once.
        self.source.problems[told:] = dict.fromkeys(self.source.problems[told:])
        return options

    def _validated(self, provider: Provider, node: Node, spot: Spot) -> dict[str, Any]:
        told = len(self.source.problems)
        block = cast(Map, node)
        values = self._walker.record(provider.Options, block, spot)
        if len(self.source.problems) > told:
            return {}
        record = validated(provider.Options, values, block, spot, self.source)
        return record.plain() if record is not None else {}

    def _spec(
        self,
        job: str,
        provider_name: str,
        provider: Provider,
        block: TargetBlock,
        options: Mapping[str, dict[str, Any]],
        places: Mapping[str, Entry],
    ) -> JobSpec | None:
        meshes = []
        for name, mesh in sorted(block.meshes.items()):
            if isinstance(mesh, MeshBlock):
                spec = self._mesh_spec(name, mesh, block, options[name])
                meshes.append(spec)
                where = self.source.where(places[name].place)
                for found in provider.check(spec):
                    placed = found.where or where
                    self.source.problems.append(
                        Problem(found.summary, found.detail, found.hint, placed, found.is_warning)
                    )
        if any(not problem.is_warning for problem in self.source.problems):
            return None
        return JobSpec(
            name=job,
            target=self._name,
            provider=provider_name,
            meshes=tuple(meshes),
            labels=block.labels,
            options=options[""],
            ready_timeout_s=float(seconds(block.timeouts.ready)),
        )

    def _mesh_spec(self, name: str, mesh: MeshBlock, block: TargetBlock, options: dict[str, Any]) -> MeshSpec:
        resources = mesh.resources.model_dump()
        if resources["accelerators"] is not None:
            resources["accelerators"] = resources["accelerators"].upper()
        return MeshSpec(
            name=name,
            hosts=mesh.hosts,
            env=block.runtime.env | mesh.env,
            labels=block.labels | mesh.labels,
            resources=Resources(**resources),
            on_partial=mesh.on_partial,
            on_loss=mesh.on_loss,
            python=self._client.python,
            monarch=self._client.monarch,
            options=options,
        )
