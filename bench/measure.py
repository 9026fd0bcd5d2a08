"""Measures the commands as a person runs them; appends to results.jsonl and fails where a limit is passed.

python bench/measure.py [FIGURE ...]
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAB = ROOT / "tests" / "labs" / "files"
COMMAND = [sys.executable, "-c", "from monarch_infra.cli import main; main()"]
RUNS = 5

HELLO = """
from monarch.actor import Actor, endpoint
from monarch_infra import InfraJob
class Hello(Actor):
    @endpoint
    def hello(self) -> str:
        return "hello"
if __name__ == "__main__":
    procs = InfraJob("job.yaml").state().workers.spawn_procs(per_host={"gpus": 1})
    print(*procs.spawn("hello", Hello).hello.call().get().values())
    procs.stop().get()
"""


@dataclass(frozen=True)
class Took:
    """What one run of a command cost, with its children."""

    wall_s: float
    cpu_s: float


def run(directory: Path, *arguments: str, program: list[str] | None = None) -> Took:
    """Run our command, or *program*, in a directory; it must succeed."""
    environment = {**os.environ, "PYTHONPATH": str(LAB)}
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*(program or COMMAND), *arguments], cwd=directory, env=environment, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(time.perf_counter() - began, cpu_s)


@contextlib.contextmanager
def job(text: str, target: str = "local") -> Iterator[Path]:
    """Give a fresh directory with a job file; what was applied there is destroyed afterwards."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "bench"
        directory.mkdir()
        (directory / "job.yaml").write_text(f"version: 1\n{text}\ntargets: {{files: {{provider: files}}}}\n")
        try:
            yield directory
        finally:
            run(directory, "destroy", "--yes", "--target", target)


def best_cpu(directory: Path, *arguments: str) -> list[float]:
    return [run(directory, *arguments).cpu_s for _ in range(RUNS)]


def help_() -> list[float]:
    return best_cpu(ROOT, "--help")


def validate() -> list[float]:
    with job("hosts: 2") as directory:
        return best_cpu(directory, "validate")


IMPORTS = "import click, yaml\nfrom pydantic import BaseModel\nclass Made(BaseModel):\n    text: str"


def validate_to_imports() -> list[float]:
    """Return validate's cost as a ratio to what it cannot do without: the start of Python, click, pydantic and YAML."""
    bare = min(run(ROOT, "-c", IMPORTS, program=[sys.executable]).cpu_s for _ in range(RUNS))
    return [cost / bare for cost in validate()]


def validate_1000() -> list[float]:
    with job("meshes: {" + ", ".join(f"m{number}: 2" for number in range(1000)) + "}") as directory:
        return best_cpu(directory, "validate")


def plan_noop() -> list[float]:
    with job("hosts: 2") as directory:
        run(directory, "apply", "--yes")
        return [run(directory, "plan").wall_s for _ in range(RUNS)]


PARTS = """
import sys, time
from pathlib import Path
from monarch_infra import line
from monarch_infra.engine import command
spent = []
wait = command.Command._wait
def timed(self, *given, **named):
    began = time.perf_counter()
    try:
        return wait(self, *given, **named)
    finally:
        spent.append(time.perf_counter() - began)
command.Command._wait = timed
line.plan(line.load(Path("job.yaml")))
print(sum(spent))
"""


def plan_noop_engine() -> list[float]:
    with job("hosts: 2") as directory:
        run(directory, "apply", "--yes")
        return [
            float(subprocess.run([sys.executable, "-c", PARTS], cwd=directory, capture_output=True, text=True).stdout)
            for _ in range(RUNS)
        ]


def apply_to_answer() -> list[float]:
    found = []
    for _ in range(RUNS):
        with job("hosts: 2") as directory:
            (directory / "hello.py").write_text(HELLO)
            applied = run(directory, "apply", "--yes")
            answered = run(directory, "hello.py", program=[sys.executable])
            found.append(applied.wall_s + answered.wall_s)
    return found


def plan_1024_to_16() -> list[float]:
    found = []
    for _ in range(RUNS):
        cost = {}
        for hosts in (16, 1024):
            with job(f"hosts: {hosts}", "files") as directory:
                run(directory, "apply", "--yes", "--target", "files")
                cost[hosts] = min(run(directory, "plan", "--target", "files").cpu_s for _ in range(3))
        found.append(cost[1024] / cost[16])
    return found


def apply_calls_per_mesh() -> list[float]:
    meshes = 64
    with job("meshes: {" + ", ".join(f"m{number}: 2" for number in range(meshes)) + "}", "files") as directory:
        run(directory, "apply", "--yes", "--target", "files")
        calls = (directory / "world" / "calls.log").read_text().splitlines()
        return [len(calls) / meshes]


def left_over() -> list[float]:
    """Count processes that were started from here and are no hosts, after a whole life of a job."""
    with job("hosts: 2") as directory:
        for arguments in (("plan",), ("apply", "--yes"), ("plan",), ("status",)):
            run(directory, *arguments)
        return [float(len(_ours(directory)))]


def _ours(directory: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            place = os.readlink(entry / "cwd")
            if place.startswith(str(directory)) and "worker.py" not in " ".join(words):
                found.append(" ".join(words))
    return found


FIGURES: dict[str, tuple[Callable[[], list[float]], str, float | None]] = {
    "help": (help_, "CPU s", 0.15),
    "validate": (validate, "CPU s", 0.25),
    "validate_to_imports": (validate_to_imports, "ratio", None),
    "validate_1000": (validate_1000, "CPU s", 2.0),
    "plan_noop": (plan_noop, "wall s", 1.0),
    "plan_noop_engine": (plan_noop_engine, "wall s", None),
    "apply_to_answer": (apply_to_answer, "wall s", 4.0),
    "plan_1024_to_16": (plan_1024_to_16, "ratio", 1.3),
    "apply_calls_per_mesh": (apply_calls_per_mesh, "calls", None),
    "left_over": (left_over, "processes", 0.0),
}


def main(chosen: list[str]) -> int:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    is_within = True
    for name in chosen or FIGURES:
        measure, unit, limit = FIGURES[name]
        raw = [round(value, 3) for value in measure()]
        best = min(raw)
        line = {
            "figure": name,
            "unit": unit,
            "best": best,
            "limit": limit,
            "raw": raw,
            "commit": commit.strip(),
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "cores": os.cpu_count(),
        }
        with (ROOT / "bench" / "results.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        is_passed = limit is None or best <= limit
        is_within = is_within and is_passed
        print(
            f"{name:22} {best:>8} {unit:10} {'' if limit is None else f'limit {limit}'} {'' if is_passed else 'OVER'}"
        )
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
