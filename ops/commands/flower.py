"""noidle flower: the task monitor, with authentication."""

from pathlib import Path
from typing import Annotated

import typer

from noidle.errors import ConfigError
from ops.commands import output
from ops.commands.options import Data, Redis, cluster_settings
from ops.data_dir import DataDir
from ops.flower_app.address import FLOWER_PORT, FLOWER_USER, MAX_TASKS
from ops.process_log import log_to_stderr
from ops.valkey import LOOPBACK


def flower(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where it listens.")] = FLOWER_PORT,
    address: Annotated[
        str,
        typer.Option(help="Other addresses than loopback need a TLS proxy in front of them."),
    ] = LOOPBACK,
    password_file: Annotated[
        Path | None,
        typer.Option(help="Holds the password; default: generated, in the data directory."),
    ] = None,
    max_tasks: Annotated[
        int, typer.Option(min=100, help="Jobs kept in memory; older ones leave.")
    ] = MAX_TASKS,
    data: Data = None,
    redis: Redis = None,
) -> None:
    """Run Flower for this cluster until SIGTERM: pools, and one row a job."""
    settings = cluster_settings(data, redis)
    place = DataDir(root=settings.data_dir)
    place.create()
    file = password_file or place.secrets / "flower"
    password = _read(file) if password_file else place.secret("flower")
    log_to_stderr(settings.log_level)
    output.line(f"Flower: http://{address}:{port} (user {FLOWER_USER}, password in {file})")
    # Flower reads and sets options of the whole process on import
    from ops.flower_app.server import FlowerOptions, serve

    serve(
        settings,
        FlowerOptions(password=password, port=port, address=address, max_tasks=max_tasks),
    )


def _read(path: Path) -> str:
    try:
        password = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--password-file = {path}: cannot be read: {error}",
            variable="--password-file",
            value=str(path),
            allowed="a file with one line of text",
        ) from None
    if not password:
        raise ConfigError(f"--password-file = {path}: is empty", variable="--password-file")
    return password
