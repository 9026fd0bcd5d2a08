"""The program as plain `pulumi` runs it: the job file from MONARCH_INFRA_JOB, the target from MONARCH_INFRA_TARGET."""

import os
from pathlib import Path

from monarch_infra import line, stacks

stacks.compile(
    line.load(
        Path(os.environ.get("MONARCH_INFRA_JOB", "job.yaml")), os.environ.get("MONARCH_INFRA_TARGET", "local")
    ).spec
)()
