"""The directory of ours beside a job file: where the engine works and where local state lives.

It makes files only when the engine is about to need them; reading a workspace never creates it.
"""

import fcntl
import json
import os
import secrets
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from monarch_infra.problem import EngineError, InfraError

PROJECT = "monarch-infra"
PICKLE = ".job_state.pkl"
"""Follows the first digits of the deployment's id in the name of what an `InfraJob` writes for Monarch's tools."""
DIRECTORY = ".monarch-infra"
ORGANIZATION = "organization"
"""What a self-managed backend calls every stack's owner; it stands in lock paths."""


LOGS_KEPT = 10
"""The engine writes a sealed log of 30 kB per operation and never removes one."""
ROOM_BYTES = 16 << 20
"""A state of 4,096 hosts has 1 MB; the engine keeps it twice, writes it anew beside that, and once in the history."""
HISTORY_KEPT = 20
"""Past updates that stay on the engine's record, each with the whole state of then."""


@dataclass(frozen=True)
class Workspace:
    """One stack and the files that it keeps on this machine."""

    root: Path
    stack: str

    @classmethod
    def beside(cls, job_file: Path, stack: str) -> "Workspace":
        return cls(job_file.resolve().parent / DIRECTORY, stack)

    @property
    def home(self) -> Path:
        """What belongs to this stack alone, such as its local hosts."""
        return self.root / self.stack

    @property
    def workdir(self) -> Path:
        return self.root.parent

    @property
    def key_file(self) -> Path:
        return self.root / "key"

    @property
    def books(self) -> Path:
        """The folder that the engine's backend keeps its state under."""
        return self.root / "state"

    @property
    def state_file(self) -> Path:
        return self.books / ".pulumi" / "stacks" / PROJECT / f"{self.stack}.json"

    @property
    def locks(self) -> Path:
        return self.books / ".pulumi" / "locks" / ORGANIZATION / PROJECT / self.stack

    @property
    def exists(self) -> bool:
        """True once the stack has a state."""
        return self.state_file.is_file()

    @cached_property
    def backend_url(self) -> str:
        # Without attribute files: the backend writes them in place, and a kill leaves an empty one that makes the
        # next command fail with "failed to load checkpoint: EOF".  The state itself it renames into place.
        return f"file://{quote(str(self.books))}?metadata=skip"

    def prepare(self) -> None:
        """Make what the engine needs to find: the project, the backend's folder and the key that seals secrets."""
        made_key = not self.key_file.exists()
        if made_key and self.exists:
            raise EngineError(
                "the key of the state is missing",
                f"{self.key_file} sealed the secrets in {self.state_file}; without it they cannot be read, and a new "
                "key would lock you out of them for good.",
                hint=f"restore {self.key_file.name} from where you keep it, into {self.root}",
            )
        try:
            self.books.mkdir(parents=True, exist_ok=True)
            _write(self.root / ".gitignore", "*\n")
            _write(self.root / "Pulumi.yaml", f"name: {PROJECT}\nruntime: python\n")
            if made_key:
                _write_once(self.key_file, secrets.token_urlsafe(32))
        except OSError as error:
            raise InfraError(
                "the job's directory cannot be written",
                f"{error.filename}: {error.strerror}.",
                hint=f"what was made is recorded in {self.root}: make room and let it be written, then try again",
            ) from error

    def require_room(self) -> None:
        """Refuse to begin what may not be recorded: on a full disk the engine leaves half a state in its place.

        Raises:
            InfraError: there is too little room.
        """
        free = shutil.disk_usage(self.root).free
        if free < ROOM_BYTES:
            raise InfraError(
                "no room for the state",
                f"{self.root} has {free >> 20} MB free and needs {ROOM_BYTES >> 20} MB.",
                hint="make room there, then try again",
                done=["Nothing was changed."],
            )

    def trim(self) -> None:
        """Remove old logs and the oldest past updates, which the engine gathers for ever."""
        history = self.books / ".pulumi" / "history" / PROJECT / self.stack
        for folder, kept in ((self.root / "engine" / "logs", LOGS_KEPT), (history, 2 * HISTORY_KEPT)):
            for file in sorted(folder.glob("*"), key=_age)[kept:]:
                with suppress(OSError):
                    file.unlink()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other commands of this machine out for a moment."""
        with (self.root / "making").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def environment(self) -> dict[str, str]:
        """What the engine's command reads from its environment: ours, never the user's own Pulumi settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PULUMI_")}
        return kept | {
            "PULUMI_BACKEND_URL": self.backend_url,
            "PULUMI_HOME": str(self.root / "engine"),
            "PULUMI_CONFIG_PASSPHRASE_FILE": str(self.key_file),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER": "true",
            "PULUMI_DEBUG_COMMANDS": "true",  # unhides --client and --event-log
            "PULUMI_PARALLEL_DIFF": "true",
            "PULUMI_DISABLE_CHECKPOINT_BACKUPS": "true",  # they grow for ever; the backend's own .bak remains
            "NO_COLOR": "1",
        }

    def forget(self) -> None:
        """Remove what clients of a deployment that ended left here; nothing where something else is kept."""
        for pickle in self.home.glob(f"*{PICKLE}"):
            pickle.unlink(missing_ok=True)
        with suppress(OSError):
            self.home.rmdir()

    def checkpoint(self) -> dict[str, Any]:
        """Return the stack's state as the backend keeps it; empty where there is none.

        Raises:
            EngineError: the file is there and cannot be read as a state.
        """
        try:
            text = self.state_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        try:
            latest: dict[str, Any] = json.loads(text)["checkpoint"]["latest"] or {}
        except (ValueError, KeyError, TypeError) as error:
            backup = self.state_file.with_suffix(".json.bak")
            raise EngineError(
                "the state cannot be read",
                f"{self.state_file} is not a whole state ({error}).",
                hint=shlex.join(["cp", str(backup), str(self.state_file)]) if backup.exists() else "",
            ) from error
        return latest


def _age(file: Path) -> float:
    """Return how old a file is; one that vanishes meanwhile is the oldest."""
    try:
        return -file.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _write(path: Path, text: str) -> None:
    if not path.exists():
        path.write_text(text, encoding="utf-8")


def _write_once(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all, and never over another."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
