"""cluster.json: what the supervisor of this host has started, for the commands beside it.
Readable for its owner only, since it holds the addresses with their passwords."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ops.data_dir import DataDir, write_private
from ops.lock import holder
from workers.settings import load_settings


class FlowerAddress(BaseModel):
    """Where Flower answers, and who may enter."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    url: str
    user: str
    password: str
    password_file: str


class ClusterFile(BaseModel):
    """One running supervisor and what it runs."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    # Redis's address, with its password
    url: str
    # holds that address alone, for shells and programs
    url_file: str | None = None
    # whether the supervisor runs that Redis itself
    embedded: bool
    # the supervisor
    pid: int
    # true once the router decides and every pool has reported
    ready: bool = False
    flower: FlowerAddress | None = None
    # process name to its number; absent while it waits to be restarted
    pids: dict[str, int] = {}
    ports: dict[str, int] = {}


def read(data: DataDir) -> ClusterFile | None:
    """What the file says, be it stale or not; None where there is none or it is damaged."""
    try:
        return ClusterFile.model_validate_json(data.cluster_file.read_text())
    except (OSError, ValidationError):
        return None


def write(data: DataDir, cluster: ClusterFile) -> None:
    write_private(data.cluster_file, cluster.model_dump_json(indent=2))
    write_private(data.url_file, f"{cluster.url}\n")


def remove(data: DataDir) -> None:
    """Nothing is up any more."""
    for file in (data.url_file, data.cluster_file):
        file.unlink(missing_ok=True)


def running(data: DataDir) -> ClusterFile | None:
    """The cluster that is up on this data directory now; a file that a killed supervisor left
    behind does not count."""
    pid = holder(data.lock)
    cluster = read(data) if pid is not None else None
    return cluster if cluster is not None and cluster.pid == pid else None


def local_url(root: Path | None = None) -> str | None:
    """The address of the cluster that is up on this host, or None.

    Args:
        root: its data directory; absent, the one the settings name.
    """
    cluster = running(DataDir(root=root.expanduser() if root else load_settings().data_dir))
    return cluster.url if cluster is not None else None
