"""Where a host's cluster keeps its files: the layout, who may read them, generated secrets.
Knows nothing of what is written there."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from noidle.errors import ConfigError

_OWNER_ONLY = 0o700


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDir:
    """The data directory of one host.

    cluster.json   what is up, while something is up
    lock           held by the supervisor
    secrets/       passwords, one a file, and the address of what is up; for the owner alone
    valkey/        the embedded server's configuration and append-only file
    logs/          one file a process, bounded
    models/, text/ what jobs write and may read
    """

    root: Path

    @property
    def cluster_file(self) -> Path:
        return self.root / "cluster.json"

    @property
    def url_file(self) -> Path:
        return self.secrets / "url"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def valkey(self) -> Path:
        return self.root / "valkey"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def log(self, process: str) -> Path:
        return self.logs / f"{process}.log"

    def create(self) -> None:
        """Makes every folder that is missing, closed to other users.

        Raises:
            ConfigError: the directory cannot be made or written.
        """
        try:
            for folder in (self.root, self.secrets, self.valkey, self.logs):
                folder.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
            for folder in (self.root / "models", self.root / "text"):
                folder.mkdir(exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the data directory {self.root} cannot be used: {error.strerror}; "
                "name another with --data or NOIDLE_DATA_DIR",
                variable="NOIDLE_DATA_DIR",
                value=str(self.root),
                allowed="a directory this user may write",
            ) from error

    def secret(self, name: str) -> str:
        """The password of that name, generated on first use (192 random bits)."""
        path = self.secrets / name
        if not path.exists():
            write_private(path, secrets.token_urlsafe(24))
        return path.read_text().strip()


def write_private(path: Path, text: str) -> None:
    """Replaces the file at once, readable for its owner only from the first byte on."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.replace(path)
