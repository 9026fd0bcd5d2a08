"""What the command loads before it knows what it is asked: nothing that a person would wait for."""

import subprocess
import sys

HEAVY = ("pydantic", "pulumi", "monarch", "boto3", "google", "grpc", "yaml", "cryptography")

REPORT = f"""
import sys
sys.argv = ["monarch-infra", *sys.argv[1:]]
try:
    from monarch_infra.cli import main
    if sys.argv[1:]:
        main()
except SystemExit:
    pass
finally:
    print(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)
"""


def loaded(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", REPORT, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stderr.split()


def test_the_command_is_imported_without_anything_heavy() -> None:
    assert loaded() == []


def test_help_is_printed_without_anything_heavy() -> None:
    assert loaded("--help") == []
