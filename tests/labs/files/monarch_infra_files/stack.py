"""What the part of a stack that is files is given."""

from typing import Any

from monarch_infra.model import JobSpec, MeshSpec


def site(spec: JobSpec) -> dict[str, Any]:
    """Return the options that all meshes share."""
    return spec.options


def group(spec: JobSpec, mesh: MeshSpec) -> dict[str, Any]:
    """Return the inputs of one mesh's hosts."""
    return mesh.inputs
