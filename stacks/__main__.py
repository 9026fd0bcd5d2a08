"""The program as plain `pulumi` runs it: the job file from MONARCH_INFRA_JOB, the target from MONARCH_INFRA_TARGET."""

from monarch_infra import line, stacks

stacks.compile(line.load_from_environment().spec)()
