"""A host is a file `world/<deployment>/<mesh>/<rank>.<generation>`; its life follows `world/rules.json`.

It keeps the promises of a provider and nothing more: what adopts, rolls back or waits is not here.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from monarch_infra.model import (
    Boot,
    Cause,
    Diff,
    Ground,
    Host,
    Made,
    MeshSpec,
    Phase,
    Reason,
    Record,
    Refusal,
    Site,
    Verdict,
    Worker,
)
from monarch_infra.problem import CredentialsError, PartError, Problem

ERRORS: Mapping[str, type[Exception]] = {
    "bug": RuntimeError,
    "credentials": CredentialsError,
    "part": PartError,
}


class Options(Record):
    """What a job file may say under `files`."""

    zone: str = "a"
    """Where the file would stand; another zone is another host."""


class Files:
    """Makes, finds and removes files."""

    Options = Options
    ignores = frozenset({"resources.fabric"})
    is_free = False

    def check(self, mesh: MeshSpec) -> Iterable[Problem]:
        return ()

    def diff(self, old: MeshSpec, new: MeshSpec) -> Diff:
        zones = [mesh.options.get("zone", "a") for mesh in (old, new)]
        return Diff(
            restart=tuple(_reasons("env", old.env, new.env)),
            replace=(Reason(path="options.zone", old=zones[0], new=zones[1]),) if zones[0] != zones[1] else (),
        )

    def preflight(self, site: Site, asked: Mapping[str, int]) -> Iterable[Verdict]:
        quota = _rules(site).get("quota")
        if quota is not None and sum(asked.values()) > quota:
            yield Verdict(text=f"quota {quota}, asked for {sum(asked.values())}", is_refusal=True)

    def find(self, site: Site) -> list[Host]:
        _note(site, "find")
        rules = _rules(site)
        _act(rules, "find")
        found = []
        for file in sorted(_world(site).glob(f"{site.deployment}/*/[0-9]*")):
            with suppress(FileNotFoundError):  # another mesh's host is being removed meanwhile
                found.append(_host(file, rules))
        return found

    def prepare(self, site: Site, boot: Boot) -> Ground:
        _note(site, "prepare")
        _act(_rules(site), "prepare")
        (_world(site) / site.deployment).mkdir(parents=True, exist_ok=True)
        return Ground(values={"prepared": True})

    def make(self, mesh: MeshSpec, ranks: Mapping[int, int], ground: Ground, boot: Boot) -> Made:
        site = boot.site
        _note(site, f"make {mesh.name} {sorted(ranks.items())}")
        folder = _world(site) / site.deployment / mesh.name
        folder.mkdir(parents=True, exist_ok=True)
        rules = _rules(site)
        room = rules.get("capacity", 1 << 30) - _count(site)
        made, refused = [], []
        for rank, generation in sorted(ranks.items()):
            file = folder / f"{rank}.{generation}"
            if not file.exists():
                if room <= 0 or f"{mesh.name}[{rank}]" in rules.get("refuses", ()):
                    refused.append(rank)
                    continue
                draft = folder / f".{rank}.{generation}.{threading.get_ident()}"
                draft.write_text(json.dumps({"made_from": mesh.made_from, "born": time.time()}))
                with suppress(FileExistsError):
                    os.link(draft, file)
                draft.unlink()
                room -= 1
            made.append(_host(file, rules))
        _act(rules, "make")
        refusal = Refusal(ranks=tuple(refused), cause=Cause.CAPACITY, reason="no capacity for another file")
        return Made(hosts=tuple(made), refused=(refusal,) if refused else ())

    def remove(self, mesh: str, hosts: Iterable[Host]) -> None:
        for host in hosts:
            file = Path(host.provider_id)
            _log(file.parents[2], f"remove {mesh} {file.name}")
            _act(_read(file.parents[2]), f"remove {mesh}")
            file.unlink(missing_ok=True)

    def clear(self, site: Site) -> list[str]:
        _note(site, "clear")
        shutil.rmtree(_world(site) / site.deployment, ignore_errors=True)
        return []

    @contextmanager
    def reach(self, host: Host, port: int) -> Iterator[tuple[str, int]]:
        yield "127.0.0.1", port


def _world(site: Site) -> Path:
    return site.workdir / "world"


def _rules(site: Site) -> dict[str, Any]:
    return _read(_world(site))


def _read(world: Path) -> dict[str, Any]:
    try:
        rules: dict[str, Any] = json.loads((world / "rules.json").read_text())
    except FileNotFoundError:
        return {}
    return rules


def _act(rules: Mapping[str, Any], verb: str) -> None:
    """Take as long as the rules say and fail as they say: at the end of the verb, when what it does is done."""
    time.sleep(rules.get("slow_s", 0))
    kind, text = rules.get("raises", {}).get(verb, (None, ""))
    if kind is not None:
        raise ERRORS[kind](text) if kind == "bug" else ERRORS[kind]("the provider failed", text)


def _note(site: Site, call: str) -> None:
    _world(site).mkdir(parents=True, exist_ok=True)
    _log(_world(site), call)


def _log(world: Path, call: str) -> None:
    with (world / "calls.log").open("a") as log:
        log.write(call + "\n")


def _count(site: Site) -> int:
    return sum(1 for _ in _world(site).glob("*/*/[0-9]*"))


def _host(file: Path, rules: Mapping[str, Any]) -> Host:
    written = json.loads(file.read_text())
    rank, generation = map(int, file.name.split("."))
    name = f"{file.parent.name}[{rank}]"
    phase, reason = Phase.READY, ""
    if time.time() < written["born"] + rules.get("boot_s", 0) and name in rules.get("boots", [name]):
        phase = Phase.BOOTING
    elif name in rules.get("stays_queued", ()):
        phase, reason = Phase.QUEUED, "nothing is free"
    elif name in rules.get("dies", ()) or (generation > 1 and name in rules.get("dies_young", ())):
        phase, reason = Phase.ENDED, "died at boot"
    return Host(
        mesh=file.parent.name,
        rank=rank,
        generation=generation,
        provider_id=str(file),
        phase=phase,
        reason=reason,
        made_from=written["made_from"],
        worker=Worker(address=f"tcp://127.0.0.1:{20000 + rank}", proc_id=f"service<{file.name}>"),
    )


def _reasons(name: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Reason]:
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            yield Reason(path=f"{name}.{key}", old=old.get(key), new=new.get(key))
