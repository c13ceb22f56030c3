"""What a job costs Redis: the commands of its life and of a look, as the server counts them. Owns
the comparison; knows nothing of bars."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tests.integration.routing.test_operations import Counted
from tests.valkey_process import ValkeyProcess

HELD = (10, 1_000)
POOLS = (2, 50)


class CommandFigures(BaseModel):
    """Commands beside so many held jobs and pools."""

    model_config = ConfigDict(frozen=True)

    held: int
    pools: int
    # from acceptance to result, those in scripts among them
    life: dict[str, int]
    # the pump reading what waits and what is leased
    look: dict[str, int]

    @property
    def commands(self) -> int:
        return sum(self.life.values())

    @property
    def scripts(self) -> int:
        return sum(count for name, count in self.life.items() if name in ("evalsha", "eval"))


def measure_commands(folder: Path) -> tuple[CommandFigures, ...]:
    server = ValkeyProcess(folder)
    server.start()
    try:
        return tuple(_count(server.url, held, pools) for pools in POOLS for held in HELD)
    finally:
        server.stop()


def _count(url: str, held: int, pools: int) -> CommandFigures:
    counted = Counted(url, held=held, pools=pools)
    try:
        return CommandFigures(
            held=held,
            pools=pools,
            life=counted.commands(counted.life),
            look=counted.commands(counted.look),
        )
    finally:
        counted.client.close()
