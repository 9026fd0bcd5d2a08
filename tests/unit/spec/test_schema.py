"""The descriptions of the job file say what the checks do."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from monarch_infra.problem import Report
from monarch_infra.provider import Provider
from monarch_infra.spec import Loaded, load, reader, reference, schema, template
from monarch_infra.spec.jobfile import BLOCKS
from monarch_infra.spec.node import plain
from monarch_infra.spec.words import limits, parts, settings

Load = Callable[..., Loaded]
Check = Callable[..., Report]
Write = Callable[..., Path]

TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}


def fits(value: Any, rule: Any, root: Mapping[str, Any]) -> bool:
    """Return whether *value* fits the schema *rule*: the keywords that ours uses, and no others."""
    if "$ref" in rule and not fits(value, root["$defs"][rule["$ref"].rpartition("/")[2]], root):
        return False
    if "not" in rule or ("anyOf" in rule and not any(fits(value, each, root) for each in rule["anyOf"])):
        return False
    if "const" in rule and value != rule["const"]:
        return False
    if "enum" in rule and value not in rule["enum"]:
        return False
    kind = rule.get("type")
    if kind == "null":
        return value is None
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return False
    if isinstance(value, str):
        return len(value) <= rule.get("maxLength", 999) and bool(re.search(rule.get("pattern", ""), value))
    if isinstance(value, dict):
        return _map_fits(value, rule, root)
    if isinstance(value, list):
        return all(fits(each, rule.get("items", {}), root) for each in value)
    return value is None or rule.get("minimum", value) <= value <= rule.get("maximum", value)


def _map_fits(value: Mapping[str, Any], rule: Any, root: Mapping[str, Any]) -> bool:
    if any(key not in value for key in rule.get("required", ())):
        return False
    for key, inner in value.items():
        if len(key) > rule.get("propertyNames", {}).get("maxLength", 999):
            return False
        rules = [rule["properties"][key]] if key in rule.get("properties", {}) else []
        rules += [each for pattern, each in rule.get("patternProperties", {}).items() if re.search(pattern, key)]
        more = rule.get("additionalProperties", True)
        if (not rules and more is False) or not all(fits(inner, each, root) for each in rules):
            return False
        if not rules and isinstance(more, dict) and not fits(inner, more, root):
            return False
    return True


RIGHT = [
    "version: 1\nhosts: 2\n",
    "version: 1\nname: a\nlabels: {a: b}\nmeshes: {a: 1, b: {hosts: 2}}\nx-z: [1]\n",
    'version: 1\nmeshes: {a: {hosts: 1, resources: {accelerators: "H100:8", memory: 64Gi, fabric: off}}}\n',
    "version: 1\nhosts: 1\nruntime: {env: {A: b}}\ntimeouts: {ready: 1h30m}\ntargets: {local: {hosts: 3}}\n",
    "version: 1\nhosts: 1\ntargets: {p: {provider: cloud, cloud: {region: us}, runtime: {env: {A: null}}}}\n",
    "version: 1\nmeshes: {a: {hosts: 1, cloud: {spot: true}}}\ntargets: {p: {provider: local, meshes: {a: 2}}}\n",
    "version: 1\nmeshes: {a: 1, b: 2}\ntargets: {p: {provider: local, meshes: {b: null, a: {on_partial: keep}}}}\n",
]
WRONG = [
    "hosts: 2\n",
    "version: 2\nhosts: 2\n",
    "version: 1\nhosts: 0\n",
    "version: 1\nhosts: {min: 1, want: 2, max: 3}\n",
    "version: 1\nhosst: 1\nmeshes: {a: 1}\n",
    "version: 1\nmeshes: {A: 1}\n",
    "version: 1\nmeshes: {a: {hosts: 1, capacity: [spot]}}\n",
    "version: 1\nmeshes: {a: {hosts: 1, on_loss: fail}}\n",
    "version: 1\nmeshes: {a: {hosts: 1, resources: {memory: 64}}}\n",
    "version: 1\nmeshes: {a: {hosts: 1, env: {A: 1}}}\n",
    "version: 1\nhosts: 1\nadmin: true\n",
    "version: 1\nhosts: 1\ntimeouts: {ready: 15}\n",
    "version: 1\nhosts: 1\ntargets: {A: {provider: local}}\n",
    "version: 1\nhosts: 1\ntargets: {p: {provider: cloud, cloud: {region: us, sopt: true}}}\n",
    "version: 1\nhosts: 1\ntargets: {p: {provider: local, labls: null}}\n",
]


@pytest.mark.parametrize("text", RIGHT)
def test_schema_and_checks_accept_the_same(
    write: Write, validate: Check, catalogue: Mapping[str, Provider], text: str
) -> None:
    """An editor that knows the schema marks nothing in a right file."""
    made = schema(_known(catalogue))

    assert validate(text).problems == []
    assert fits(_typed(write(text)), made, made)


@pytest.mark.parametrize("text", WRONG)
def test_schema_and_checks_refuse_the_same(
    write: Write, validate: Check, catalogue: Mapping[str, Provider], text: str
) -> None:
    """An editor that knows the schema marks what we would refuse."""
    made = schema(_known(catalogue))

    assert validate(text).errors != []
    assert not fits(_typed(write(text)), made, made)


def _typed(file: Path) -> Any:
    return plain(reader.read(file)[1])


def _known(catalogue: Mapping[str, Provider]) -> Mapping[str, Provider]:
    return {name: catalogue[name] for name in catalogue if name != "broken"}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)
def test_every_setting_is_described(block: type[BaseModel]) -> None:
    """The docstring under a setting is its description everywhere."""
    assert [key for key, field in settings(block).items() if not (field.description or "").endswith(".")] == []


def test_every_setting_is_in_the_reference() -> None:
    """Built settings have a row, planned ones a line."""
    text = reference()

    for block in BLOCKS:
        for key, field in settings(block).items():
            is_planned = limits(parts(field.annotation, tuple(field.metadata))[1]).is_planned
            assert (f"{key}`: " if is_planned else f"| `{key}` |") in text


def test_the_schema_is_the_same_each_time(catalogue: Mapping[str, Provider]) -> None:
    """It is published and compared, so its text may not move by itself."""
    assert json.dumps(schema(_known(catalogue))) == json.dumps(schema(_known(catalogue)))


def test_the_template_loads(write: Write, catalogue: Mapping[str, Provider]) -> None:
    """What `init` writes is a job of two hosts, and a script that uses its mesh."""
    files = template()
    file = write(files["job.yaml"])

    spec = load(file, python="3.11", monarch="0.7.0", catalogue=catalogue).spec

    assert [(mesh.name, mesh.hosts) for mesh in spec.meshes] == [("workers", 2)]
    assert "state.workers" in files["hello.py"]
    compile(files["hello.py"], "hello.py", "exec")
    assert 'if __name__ == "__main__":' in files["hello.py"]


DESIGN_EXAMPLE = """\
version: 1
name: llama-rl
labels: {team: nlp, cost-center: r42}

meshes:
  trainers:
    hosts: 4
    resources: {accelerators: "H100:8", fabric: required}
    capacity: [reserved, on-demand]
    health: [gpu, fabric]
  generators:
    hosts: {min: 1, want: 4, max: 8}
    resources: {accelerators: "H100:8"}
    capacity: [spot, on-demand]
    on_loss: replace
  loaders:
    hosts: 2
    resources: {cpus: 16, memory: 64Gi, disk: 200Gi}
    env: {TOKENIZERS_PARALLELISM: "false"}

runtime:
  python: "3.11"
  monarch: "0.7.0"
  pip: [torch==2.9.1, vllm]
  setup: ./setup.sh
  env: {NCCL_DEBUG: WARN}
  secrets: {HF_TOKEN: {from: env}}

workdir: .
mounts:
  - {remote: ., at: /workspace}
  - {gather: "/tmp/ckpt/$SUBDIR", at: ./ckpt, meshes: [trainers]}
files:
  /data: {source: "s3://acme-corpus/v3", mode: mount}

telemetry: {dashboard: true, retention: 1h, otlp: "http://otel.acme.internal:4317"}
admin: true
timeouts: {ready: 15m, failure_detection: 10s}
lifetime: {ttl: 12h, idle: 45m, then: delete}
protect: false
checkpoint: {every: 30m, to: "s3://acme-ckpt/llama-rl"}
limits: {cost_per_hour: 700, cost_total: 6000}

targets:
  hpc:
    provider: slurm
    slurm: {login: login1.hpc.acme.org, account: nlp, qos: high, partition: gpu, shared_dir: "~/.monarch-infra"}
    meshes:
      loaders: {slurm: {partition: cpu}}
      generators: {hosts: 2, capacity: [on-demand]}
  k8s:
    provider: kubernetes
    runtime: {image: "ghcr.io/acme/monarch-train@sha256:…", setup: null}
    kubernetes: {context: prod-us-east, namespace: rl, queue: gpu-high}
    meshes:
      trainers: {kubernetes: {pod: {spec: {runtimeClassName: nvidia}}}}
  aws:
    provider: aws
    aws: {region: us-east-1, zones: [us-east-1a, us-east-1c], subnet: "tag:tier=gpu"}
    meshes:
      trainers: {aws: {reservation: cr-0a1b2c3d4e5f60718}}
      loaders: {resources: {instance_type: m7i.4xlarge}}
"""
"""A job file with every setting that is planned."""


def test_a_job_file_of_the_future_names_what_is_missing(validate: Check) -> None:
    """Every planned setting is `not built yet`, none is unknown."""
    found = [(p.where.line, p.summary) for p in validate(DESIGN_EXAMPLE).problems if p.where]

    assert {summary for _, summary in found} == {"not built yet"}
    assert [line for line, _ in found] == [
        *(9, 10, 12, 14, 22, 23, 24, 25, 27, 29, 30, 33, 36, 37, 38, 39, 40, 41, 42),
        *(46, 50, 52, 53, 58),
    ]
