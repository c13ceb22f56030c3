"""The cluster that shares this storage, if one is up: it is told of models that come and go, and
asked who needs one.

Owns which cluster is meant. Knows nothing of files."""

from collections.abc import Iterator
from contextlib import contextmanager

from noidle.connection import connect
from noidle.errors import ConfigError
from noidle.snapshot import ModelInfo
from ops import cluster_file
from routing.redis_board import RedisBoard
from workers.settings import Settings

_MOST_JOBS = 1000
_SHOWN = 3


class Neighbours:
    """A cluster of which pools read this storage."""

    def __init__(self, board: RedisBoard, storage: str) -> None:
        self._board = board
        self._storage = storage

    def tell(self, model: ModelInfo) -> None:
        """Jobs can name it from now on; pools find it within a second by themselves, too."""
        self._board.register(model)

    def forget(self, name: str) -> None:
        self._board.forget(name, self._storage)

    def refuse_if_needed(self, name: str) -> None:
        """
        Raises:
            ConfigError: jobs that name the model wait or run.
        """
        jobs = [job for job in self._board.jobs(_MOST_JOBS) if not job.state.final]
        needed = [job.id for job in jobs if job.model == name]
        if needed:
            ids = ", ".join(needed[:_SHOWN]) + (" …" if len(needed) > _SHOWN else "")
            raise ConfigError(
                f"model {name} is named by jobs that wait or run ({len(needed)}: {ids}); wait for "
                "them, cancel them, or remove it in any case with --force"
            )


@contextmanager
def neighbours(settings: Settings, storage: str) -> Iterator[Neighbours | None]:
    """None where no cluster is named or up, or none of its pools reads this storage.

    Raises:
        ClusterUnavailable: its Redis does not answer.
    """
    named = "url" in settings.model_fields_set
    url = settings.url if named else cluster_file.local_url(settings.data_dir)
    if url is None:
        yield None
        return
    with connect(url, max_connections=2) as client:
        board = RedisBoard(client)
        shared = any(pool.storage == storage for pool in board.pools())
        yield Neighbours(board, storage) if shared else None
