"""The job file: the only reader of YAML in the product.

`load` gives the job on one target, `check` everything that is wrong on any.  Asks no provider about the live world.
"""

from monarch_infra.spec.describe import reference, schema, template
from monarch_infra.spec.file import Loaded, check, load
from monarch_infra.spec.known import DEFAULT_TARGET

__all__ = ["DEFAULT_TARGET", "Loaded", "check", "load", "reference", "schema", "template"]
