"""Where Flower listens and under which name one enters. Apart from the server, so that nobody
loads Flower to know it."""

from noidle.errors import ConfigError
from ops.valkey import free_port, port_is_free

FLOWER_USER = "noidle"
FLOWER_PORT = 5555
MAX_TASKS = 10_000


def choose_flower_port(wanted: int | None) -> int:
    """The wanted port, else the usual one, else a free one.

    Raises:
        ConfigError: the wanted port is taken.
    """
    if wanted is not None and not port_is_free(wanted):
        raise ConfigError(
            f"--flower-port = {wanted}: another program listens there; leave it out to get a "
            "free one",
            variable="--flower-port",
            value=str(wanted),
            allowed="a free port",
        )
    if wanted is not None:
        return wanted
    return FLOWER_PORT if port_is_free(FLOWER_PORT) else free_port()
