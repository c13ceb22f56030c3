"""Options that several verbs share, and what they resolve to: settings, the cluster's address."""

from pathlib import Path
from typing import Annotated, Any

import typer

from noidle.errors import ConfigError
from ops import cluster_file
from ops.data_dir import DataDir
from workers.settings import Settings, load_settings

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Data directory: queue, models, logs. Also NOIDLE_DATA_DIR; default ~/.noidle.",
    ),
]
Redis = Annotated[
    str | None,
    typer.Option(
        "--redis",
        "--url",
        metavar="URL",
        help="The cluster's Redis. Better in NOIDLE_URL: a command line is seen by every user.",
    ),
]
Preload = Annotated[
    list[str] | None,
    typer.Option(metavar="MODEL", help="A model to load at start; else on first use."),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON for programs.")]


def cluster_settings(data: Path | None, redis: str | None, **given: Any) -> Settings:
    """Settings with the address of the cluster to talk to: `redis`, else NOIDLE_URL, else that
    of the cluster that is up on this host.

    Raises:
        ConfigError: there is none of them.
    """
    settings = load_settings(data_dir=data, url=redis, **given)
    if "url" in settings.model_fields_set:
        return settings
    url = cluster_file.local_url(settings.data_dir)
    if url is None:
        raise ConfigError(
            f"no cluster is up on this host (data directory {settings.data_dir}); start one with "
            "`noidle up`, or name the Redis of another in NOIDLE_URL",
            variable="NOIDLE_URL",
        )
    return settings.model_copy(update={"url": url})


def data_dir(data: Path | None) -> DataDir:
    return DataDir(root=load_settings(data_dir=data).data_dir)
