"""What a job file may say under `local`: nothing yet."""

from monarch_infra.model import Record


class Options(Record):
    """No setting of its own: a local host is a process of the Python that runs the command."""
