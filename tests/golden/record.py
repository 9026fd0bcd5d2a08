"""Records the cases of this folder: previews of the real engine over the files lab.

    python tests/golden/record.py                 all cases anew
    python tests/golden/record.py grow shrink     these

Each case is a function that brings a job into a situation with the real engine, in a directory of its own.  The plan
of that moment is then asked for; `job.yaml` and `steps.json` of the folder `tests/golden/<case>` are what `plan.read`
was given for it.  They are never typed by hand, so a case shows what the engine says and not what somebody believed.
Ids, digests, certificates and paths are those of one run and are written as constants.  `plan.txt` and `plan.json`
are written by `pytest tests/golden --accept`, for a person to read.
"""

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monarch_infra import line, spec
from monarch_infra import plan as planning
from monarch_infra.engine import Workspace
from monarch_infra.model import Boot, Ground, JobSpec, Plan, Step, Verdict
from monarch_infra.problem import InfraError

HERE = Path(__file__).parent
LAB = HERE.parent / "labs" / "files"
TARGET = "files"
VERSIONS = {"python": "3.11", "monarch": "0.7.0"}
"""Fixed, so that a case reads the same on every machine; no Monarch runs on a file."""

DEPLOYMENT = "d" * 32
STATE = "5" * 64
CERTIFICATE = re.compile(r"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----(\\n)?")

HOUR_S = 3600


@dataclass
class Scene:
    """A job on the files lab, in a directory of its own."""

    folder: Path
    destroys: bool = False

    @property
    def file(self) -> Path:
        return self.folder / "job.yaml"

    @property
    def job(self) -> line.Job:
        loaded = spec.load(self.file, TARGET, **VERSIONS)
        return line.Job(self.file, loaded.spec, Workspace.beside(self.file, loaded.spec.stack), loaded.warnings)

    def write(self, meshes: str, *settings: str) -> None:
        """Write the job file with *meshes*, a map in YAML's flow form or a block of them, and other lines."""
        text = "\n".join(
            [
                "version: 1",
                "name: golden",
                f"meshes: {meshes}",
                f"targets: {{{TARGET}: {{provider: {TARGET}}}}}",
                *settings,
            ]
        )
        self.file.write_text(text + "\n", encoding="utf-8")

    def rule(self, **rules: Any) -> None:
        """Say how the world behaves from now on."""
        world = self.folder / "world"
        world.mkdir(exist_ok=True)
        (world / "rules.json").write_text(json.dumps(rules))

    def apply(self, meshes: str, *settings: str, waits: bool = True) -> None:
        self.write(meshes, *settings)
        line.apply(self.job, approve=lambda plan: True, asks_first=False, waits=waits)

    def fail(self, meshes: str, *settings: str) -> None:
        """Apply what the world refuses."""
        try:
            self.apply(meshes, *settings)
        except InfraError:
            return
        raise AssertionError("the world did not refuse it")

    def lose(self, mesh: str, ranks: Iterable[int]) -> None:
        """Take hosts away without anybody's doing."""
        for rank in ranks:
            (found,) = (self.folder / "world").glob(f"*/{mesh}/{rank}.*")
            found.unlink()

    def leave(self, mesh: str, ranks: Iterable[int]) -> None:
        """Make hosts that no state names, as an apply that is killed right after `make` does."""
        job = self.job
        asked = job.spec.mesh(mesh) or job.spec.meshes[0].model_copy(update={"name": mesh})
        job.provider.make(asked, dict.fromkeys(ranks, 1), Ground(), Boot(site=job.site(job.state)))


CASES: dict[str, Callable[[Scene], None]] = {}


def case(act: Callable[[Scene], None]) -> Callable[[Scene], None]:
    CASES[act.__name__.replace("_", "-")] = act
    return act


# --- the cases --------------------------------------------------------------------------------------


@case
def first_apply(scene: Scene) -> None:
    scene.write("{trainers: 4, loaders: 1}")


@case
def nothing_to_do(scene: Scene) -> None:
    scene.apply("{trainers: 4, loaders: 1}")


@case
def grow(scene: Scene) -> None:
    scene.apply("{trainers: 2, loaders: 1}")
    scene.write("{trainers: 4, loaders: 1}")


@case
def shrink(scene: Scene) -> None:
    scene.apply("{trainers: 4, loaders: 1}")
    scene.write("{trainers: 1, loaders: 1}")


@case
def one_of_four_lost(scene: Scene) -> None:
    scene.apply("{trainers: 4}")
    scene.lose("trainers", [2])


@case
def many_lost_with_gaps(scene: Scene) -> None:
    """Every third of a hundred is gone, others ended and say how: more ranges and reasons than a line holds."""
    scene.apply("{trainers: 100}")
    scene.lose("trainers", range(0, 100, 3))
    scene.rule(dies=[f"trainers[{rank}]" for rank in range(1, 100, 10)])


@case
def all_lost_and_env_changed(scene: Scene) -> None:
    scene.apply("{trainers: {hosts: 2, env: {LEVEL: info}}}")
    scene.lose("trainers", [0, 1])
    scene.write("{trainers: {hosts: 2, env: {LEVEL: debug}}}")


@case
def env_changed(scene: Scene) -> None:
    scene.apply("{trainers: {hosts: 4, env: {LEVEL: info, OLD: '1'}}, loaders: 1}")
    scene.write("{trainers: {hosts: 4, env: {LEVEL: debug, NEW: '1'}}, loaders: 1}")


@case
def zone_changed(scene: Scene) -> None:
    """Another zone is another host."""
    scene.apply("{trainers: {hosts: 4, files: {zone: a}}, loaders: 1}")
    scene.write("{trainers: {hosts: 4, files: {zone: b}}, loaders: 1}")


@case
def labels_changed(scene: Scene) -> None:
    """Nothing restarts."""
    scene.apply("{trainers: {hosts: 4, labels: {team: blue}}}")
    scene.write("{trainers: {hosts: 4, labels: {team: red, example.org/cost-centre: '7'}}}")


@case
def policy_changed(scene: Scene) -> None:
    scene.apply("{trainers: 4}")
    scene.write("{trainers: {hosts: 4, on_partial: keep}}")


@case
def mesh_removed(scene: Scene) -> None:
    scene.apply("{trainers: 4, loaders: 2}")
    scene.write("{trainers: 4}")


@case
def mesh_added(scene: Scene) -> None:
    scene.apply("{trainers: 4}")
    scene.write("{trainers: 4, loaders: 2}")


@case
def several_at_once(scene: Scene) -> None:
    """One mesh goes, one comes, one grows and restarts, one shrinks and lost a host, one stays."""
    scene.apply("{trainers: {hosts: 2, env: {LEVEL: info}}, loaders: 4, scratch: 3, steady: 2}")
    scene.lose("loaders", [0])
    scene.write("{trainers: {hosts: 4, env: {LEVEL: debug}}, loaders: 2, generators: 8, steady: 2}")


@case
def on_their_way(scene: Scene) -> None:
    """One serves, three were asked for without waiting for them, by two applies, and stand in a queue."""
    scene.apply("{trainers: 1}")
    scene.rule(stays_queued=["trainers[1]"])
    scene.apply("{trainers: 2}", "timeouts: {ready: 1s}", waits=False)
    scene.rule(stays_queued=["trainers[1]", "trainers[2]", "trainers[3]"])
    scene.apply("{trainers: 4}", "timeouts: {ready: 1s}", waits=False)


@case
def booting(scene: Scene) -> None:
    scene.rule(boot_s=HOUR_S)
    scene.apply("{trainers: 2}", "timeouts: {ready: 1s}", waits=False)


@case
def after_a_refused_growth(scene: Scene) -> None:
    """What the refused apply had made is gone again; the next plan asks for it once more."""
    scene.apply("{trainers: 2}")
    scene.rule(capacity=3)
    scene.fail("{trainers: 4}")


@case
def after_a_refused_start(scene: Scene) -> None:
    """Nothing of the mesh stands, and yet the state knows it."""
    scene.rule(capacity=3)
    scene.fail("{trainers: 4}")


@case
def after_a_part_was_kept(scene: Scene) -> None:
    scene.rule(capacity=3)
    scene.fail("{trainers: {hosts: 4, on_partial: keep}}")


@case
def a_mesh_without_hosts_removed(scene: Scene) -> None:
    """It was refused and rolled back, and then taken out of the file."""
    scene.apply("{loaders: 1}")
    scene.rule(capacity=2)
    scene.fail("{loaders: 1, trainers: 4}")
    scene.write("{loaders: 1}")


@case
def stray(scene: Scene) -> None:
    """An apply died right after it had made a mesh that has left the file since."""
    scene.apply("{loaders: 1}")
    scene.leave("trainers", [0, 1])


@case
def a_start_cut_off_and_then_edited(scene: Scene) -> None:
    """Of four first hosts all had been made when the apply died; then the file asked for two."""
    scene.apply("{loaders: 1}")
    scene.write("{loaders: 1, trainers: 4}")
    scene.leave("trainers", [0, 1, 2, 3])
    scene.write("{loaders: 1, trainers: 2}")


@case
def a_queue_edited(scene: Scene) -> None:
    """Hosts wait in a queue, and the file asks for others now."""
    scene.rule(boot_s=3600)
    scene.apply("{trainers: {hosts: 2, env: {LEVEL: info}}}", waits=False)
    scene.write("{trainers: {hosts: 2, env: {LEVEL: debug}}}")


@case
def a_growth_cut_off_and_taken_back(scene: Scene) -> None:
    scene.apply("{trainers: 2}")
    scene.leave("trainers", [2, 3])


@case
def a_growth_cut_off_and_continued(scene: Scene) -> None:
    """Of four new hosts two had been made when the apply died."""
    scene.apply("{trainers: 2}")
    scene.write("{trainers: 6}")
    scene.leave("trainers", [2, 3])


@case
def destroy(scene: Scene) -> None:
    scene.apply("{trainers: 4, loaders: 1}")
    scene.destroys = True


@case
def destroy_with_strays(scene: Scene) -> None:
    scene.apply("{loaders: 1}")
    scene.leave("trainers", [0, 1])
    scene.destroys = True


@case
def destroy_of_nothing(scene: Scene) -> None:
    scene.write("{trainers: 4}")
    scene.destroys = True


@case
def thousand_hosts(scene: Scene) -> None:
    scene.write("{trainers: 1024}")


@case
def thousand_hosts_each_kind(scene: Scene) -> None:
    """Of 1,024 some go, some are lost, one is on its way, the rest restart."""
    scene.apply("{trainers: {hosts: 1024, env: {LEVEL: info}}}")
    scene.lose("trainers", [7, 9, *range(100, 110)])
    scene.write("{trainers: {hosts: 1020, env: {LEVEL: debug}}}")


@case
def thousand_meshes(scene: Scene) -> None:
    scene.write("{" + ", ".join(f"mesh{number}: 2" for number in range(1000)) + "}")


@case
def fifty_meshes_each_kind(scene: Scene) -> None:
    """More lines than are shown: what takes something away is among the shown."""
    names = [f"mesh{number}" for number in range(50)]
    scene.apply("{" + ", ".join(f"{name}: {{hosts: 2, env: {{LEVEL: info}}}}" for name in names) + "}")
    scene.lose("mesh40", [1])
    kept = [f"{name}: {{hosts: 2, env: {{LEVEL: {'debug' if name < 'mesh3' else 'info'}}}}}" for name in names[1:]]
    scene.write("{" + ", ".join([*kept, *(f"new{number}: 1" for number in range(20))]) + "}")


@case
def ignored_settings(scene: Scene) -> None:
    scene.write("{trainers: {hosts: 4, resources: {fabric: required, gpus: 8}}}")


@case
def refused_by_the_provider(scene: Scene) -> None:
    scene.rule(quota=2)
    scene.write("{trainers: 4}")


# --- recording --------------------------------------------------------------------------------------


def read(job: JobSpec, recorded: dict[str, Any]) -> Plan:
    """Return the plan of a recorded case."""
    facts: dict[str, Any] = {**recorded["facts"]}
    facts["verdicts"] = [Verdict.model_validate(verdict) for verdict in facts["verdicts"]]
    return planning.read(job, [Step.model_validate(step) for step in recorded["steps"]], **facts)


def record(name: str, folder: Path) -> tuple[str, str]:
    """Bring a job in *folder* into a case; return its job file and what `plan.read` is given there."""
    scene = Scene(folder)
    CASES[name](scene)
    job = scene.job
    with line.Session.of(job, destroys=scene.destroys) as session:
        steps = session.engine.preview(session.program, targets=session.targets)
        plan = session._read(steps)
    facts = {
        "state_digest": plan.state_digest,
        "deployment": plan.deployment,
        "standing": {mesh: group.inputs["hosts"] for mesh, group in job.state.groups.items()},
        "destroys": plan.destroys,
        "ignored": plan.ignored,
        "verdicts": [verdict.plain() for verdict in plan.verdicts],
    }
    recorded = {"facts": facts, "steps": [step.plain() for step in sorted(steps, key=lambda s: (s.kind, s.name, s.op))]}
    if read(job.spec, recorded) != plan:
        raise AssertionError(f"{name}: what was recorded does not read as the plan that the user would see")
    return scene.file.read_text(encoding="utf-8"), _stable(recorded, plan, folder)


def _stable(recorded: dict[str, Any], plan: Plan, folder: Path) -> str:
    """Return a recording as text, a step in each line, with constants in place of what differs from run to run."""
    steps = ",\n".join(f"  {_json(step)}" for step in recorded["steps"])
    text = f'{{\n "facts": {_json(recorded["facts"])},\n "steps": [\n{steps}\n ]\n}}\n'
    text = CERTIFICATE.sub("certificate", text).replace(str(folder.resolve()), "here")
    for volatile, constant in ((plan.deployment, DEPLOYMENT), (plan.state_digest, STATE)):
        if volatile is not None:
            text = text.replace(volatile, constant)
    return text


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def main(names: Iterable[str]) -> None:
    for name in names:
        with tempfile.TemporaryDirectory(prefix="monarch-infra-") as folder:
            job, steps = record(name, Path(folder))
        (HERE / name).mkdir(exist_ok=True)
        (HERE / name / "job.yaml").write_text(job, encoding="utf-8")
        (HERE / name / "steps.json").write_text(steps, encoding="utf-8")
        print(f"{name}: {len(steps):,} bytes", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(LAB))  # under pytest its own setting does this
    main(sys.argv[1:] or CASES)
