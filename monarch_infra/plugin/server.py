"""The gRPC server that shows deployments, sites and host groups to the engine."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import plugin_pb2, provider_pb2_grpc, status_pb2
from pulumi.runtime.proto import provider_pb2 as pb

from monarch_infra import __version__
from monarch_infra.model import Ground, HostGroup, Json, MeshSpec, Site, ranges
from monarch_infra.plugin.values import UNKNOWN, to_plain, to_struct
from monarch_infra.problem import InfraError
from monarch_infra.reconcile import Decision, GroupFailedError, Reconciler, decide, encode, parse, unwanted

THREADS = 128
"""Each group in flight holds one thread while its hosts come; the engine runs up to 64 at once."""

SECRETS = ("key", "ca_key")

_Paths: TypeAlias = "dict[str, tuple[pb.PropertyDiff.Kind.ValueType, bool]]"
"""Path -> kind of difference, and whether an input differs."""

KINDS = {
    "made": pb.PropertyDiff.ADD,
    "lost": pb.PropertyDiff.ADD,
    "removed": pb.PropertyDiff.DELETE,
}


class _Plugin(provider_pb2_grpc.ResourceProviderServicer):
    """Answers the engine for one stack."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler

    # --- the five verbs, by kind of resource --------------------------------------------------------

    def Check(self, request: Any, context: Any) -> Any:
        return pb.CheckResponse(inputs=request.news)

    def Diff(self, request: Any, context: Any) -> Any:
        paths: _Paths = {}
        kind, provider = _kind(request.urn)
        old, new, made = to_plain(request.old_inputs), to_plain(request.news), to_plain(request.olds)
        if kind == "HostGroup":
            before, after, group = _mesh(request.urn, old), _mesh(request.urn, new), parse(made)
            paths = _paths(decide(before, after, group, self._reconciler.diff(provider, before, after)))
        elif kind == "Site":
            paths = {
                f'strays["{mesh}[{ranges(int(host.partition(".")[0]) for host in hosts)}]"]': (
                    pb.PropertyDiff.DELETE,
                    False,
                )
                for mesh, hosts in unwanted(made.get("strays") or {}, new["meshes"]).items()
            }
            if old.get("options") != new.get("options"):
                paths["options"] = pb.PropertyDiff.UPDATE, True
        return pb.DiffResponse(
            changes=pb.DiffResponse.DIFF_SOME if paths else pb.DiffResponse.DIFF_NONE,
            detailedDiff={path: pb.PropertyDiff(kind=k, inputDiff=i) for path, (k, i) in paths.items()},
            hasDetailedDiff=True,
            diffs=list(paths),
        )

    def Create(self, request: Any, context: Any) -> Any:
        kind, _ = _kind(request.urn)
        inputs = to_plain(request.properties)
        if request.preview:
            unknown = {"Deployment": ("ca_certificate", *SECRETS), "Site": ("ground",), "HostGroup": ("members",)}[kind]
            return pb.CreateResponse(properties=_bag(request.properties, dict.fromkeys(unknown, UNKNOWN)))
        identity = _name(request.urn)
        outputs: dict[str, Any] = {}
        if kind == "Deployment":
            identity, key, authority = self._reconciler.new_deployment()
            outputs = {"key": key, "ca_certificate": authority.certificate, "ca_key": authority.key}
        elif kind == "Site":
            site = self._reconciler.site(inputs)
            outputs = {"ground": self._or_abort(context, lambda: self._reconciler.prepare(site)).values, "strays": {}}
        else:
            outputs = self._converge(request.urn, context, request.properties, inputs, None, HostGroup())
        return pb.CreateResponse(
            id=identity, properties=_bag(request.properties, outputs), refresh_before_update=kind != "Deployment"
        )

    def Read(self, request: Any, context: Any) -> Any:
        kind, _ = _kind(request.urn)
        inputs = to_plain(request.inputs)
        outputs: dict[str, Any] = {}
        if kind == "Site":
            site = self._reconciler.site(inputs)
            outputs = {"strays": self._or_abort(context, lambda: self._reconciler.strays(site))}
        elif kind == "HostGroup":
            site, mesh, group = self._site(inputs), _mesh(request.urn, inputs), parse(to_plain(request.properties))
            outputs = encode(self._or_abort(context, lambda: self._reconciler.observe(site, mesh, group)))
        return pb.ReadResponse(
            id=request.id,
            inputs=request.inputs,
            properties=_bag(request.properties, outputs),
            refresh_before_update=kind != "Deployment",
        )

    def Update(self, request: Any, context: Any) -> Any:
        kind, _ = _kind(request.urn)
        old, new, made = to_plain(request.old_inputs), to_plain(request.news), to_plain(request.olds)
        outputs: dict[str, Any] = {}
        if kind == "Site":
            outputs = {"ground": made.get("ground"), "strays": {}}
        if request.preview:
            unknown = {"members": UNKNOWN} if kind == "HostGroup" else outputs
            return pb.UpdateResponse(properties=_bag(request.news, unknown))
        if kind == "Site":
            site = self._reconciler.site(new)
            outputs["ground"] = self._or_abort(context, lambda: self._reconciler.prepare(site)).values
            self._or_abort(context, lambda: self._reconciler.remove_strays(site, new["meshes"]))
        elif kind == "HostGroup":
            before = _mesh(request.urn, old)
            outputs = self._converge(request.urn, context, request.news, new, before, parse(made))
        return pb.UpdateResponse(properties=_bag(request.news, outputs), refresh_before_update=kind != "Deployment")

    def Delete(self, request: Any, context: Any) -> Any:
        kind, _ = _kind(request.urn)
        inputs = to_plain(request.old_inputs)
        if kind == "HostGroup":
            site = self._site(inputs)
            self._or_abort(context, lambda: self._reconciler.remove_group(site, _name(request.urn)))
        else:
            # The deployment sweeps once more: a site whose creation was cut off is in no state.
            identity = {"deployment": request.id} if kind == "Deployment" else {}
            site = self._reconciler.site(inputs | identity)
            self._or_abort(context, lambda: self._reconciler.sweep(site))
        return empty_pb2.Empty()

    def _converge(
        self, urn: str, context: Any, given: Any, inputs: Json, before: MeshSpec | None, group: HostGroup
    ) -> dict[str, Any]:
        """Return the outputs of a group made whole as far as it goes.

        What stands of a group that failed goes back with the error: without it the engine forgets hosts that exist.
        """
        site, ground, mesh = self._site(inputs), Ground(values=inputs["ground"] or {}), _mesh(urn, inputs)
        try:
            made = self._or_abort(
                context, lambda: self._reconciler.converge(site, ground, before, mesh, group), GroupFailedError
            )
        except GroupFailedError as failed:
            self._reconciler.failures.append(failed.failure)
            context.abort_with_status(
                _init_failed(mesh.name, _bag(given, encode(failed.group)), given, failed.failure.reason)
            )
            raise  # abort_with_status raises; this line tells the type checker
        return encode(made)

    def _or_abort(self, context: Any, act: Any, passed: type[Exception] = GroupFailedError) -> Any:
        """Return what *act* does; an error becomes the engine's diagnostic."""
        try:
            return act()
        except passed:
            raise
        except InfraError as error:
            self._reconciler.errors.append(error)
            _abort(context, str(error))
        except Exception as error:
            self._reconciler.errors.append(error)
            _abort(context, f"{type(error).__name__}: {error}")

    def _site(self, inputs: Json) -> Site:
        return self._reconciler.site(inputs["site"])

    # --- what the engine asks of every plug-in ------------------------------------------------------

    def Handshake(self, request: Any, context: Any) -> Any:
        return pb.ProviderHandshakeResponse(accept_secrets=True, accept_resources=True)

    def Attach(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()

    def CheckConfig(self, request: Any, context: Any) -> Any:
        return pb.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:
        return pb.DiffResponse(changes=pb.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: Any) -> Any:
        # Once at the start of each preview and each update: what was seen before is old.
        self._reconciler.begin()
        return pb.ConfigureResponse(acceptSecrets=True, acceptResources=True, supportsPreview=True)

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version=__version__)

    def Cancel(self, request: Any, context: Any) -> Any:
        self._reconciler.cancel()
        return empty_pb2.Empty()


class _Status(grpc.Status):  # type: ignore[misc]
    def __init__(self, code: Any, details: str, trailing_metadata: Any) -> None:
        self.code, self.details, self.trailing_metadata = code, details, trailing_metadata


def _init_failed(identity: str, properties: Any, inputs: Any, reason: str) -> _Status:
    detail = pb.ErrorResourceInitFailed(
        id=identity, properties=properties, inputs=inputs, reasons=[reason], refresh_before_update=True
    )
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=reason)
    status.details.add().Pack(detail)
    return _Status(grpc.StatusCode.UNKNOWN, reason, (("grpc-status-details-bin", status.SerializeToString()),))


def _abort(context: Any, text: str) -> NoReturn:
    context.abort(grpc.StatusCode.UNKNOWN, text)
    raise AssertionError("abort raises")


def _kind(urn: str) -> tuple[str, str]:
    """Return a resource's kind and provider: `monarch:local:Site` is a Site of local."""
    _, provider, kind = urn.split("::")[2].split("$")[-1].split(":")
    return kind, provider


def _name(urn: str) -> str:
    return urn.split("::")[-1]


def _mesh(urn: str, inputs: Json) -> MeshSpec:
    return MeshSpec.from_inputs(_name(urn), inputs)


def _bag(given: struct_pb2.Struct, outputs: Json) -> struct_pb2.Struct:
    """Return *given* with *outputs* laid over it; what was secret in *given* stays marked as it came."""
    bag = struct_pb2.Struct()
    bag.CopyFrom(given)
    for name, value in to_struct(outputs, secret=SECRETS).fields.items():
        bag.fields[name].CopyFrom(value)
    return bag


def _paths(decision: Decision) -> _Paths:
    """Return a decision as the engine's detailed diff: a path per kind of work, and one per setting behind it."""
    work = {
        f'{kind}["{ranges(ranks)}"]': (KINDS.get(kind, pb.PropertyDiff.UPDATE), False)
        for kind, ranks in decision.touched.items()
    }
    settings = {reason.path: (pb.PropertyDiff.UPDATE, True) for reason in decision.reasons}
    return work | settings


@contextmanager
def serving(reconciler: Reconciler, interceptors: Sequence[Any] = ()) -> Iterator[int]:
    """Serve the plug-in on a port of the loopback; the engine attaches to it."""
    threads = ThreadPoolExecutor(max_workers=THREADS)
    server = grpc.server(threads, options=_GRPC_CHANNEL_OPTIONS, interceptors=tuple(interceptors))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(_Plugin(reconciler), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        done: threading.Event = server.stop(grace=0)
        done.wait()
        # An engine that was killed left its calls to us under way; none may act once the stack is given back.
        reconciler.cancel()
        threads.shutdown(wait=True, cancel_futures=True)
