"""The models on a pool's storage, some of which come or go while it runs: somebody adds one,
removes one, or another pool of this storage trains one.

Owns what of that the board was told already. Knows nothing of files or of engines."""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from noidle.errors import CheckpointError
from noidle.snapshot import ModelInfo

LOG = logging.getLogger("noidle.pool")


class Catalogue(Protocol):
    """What the board knows of models."""

    def models(self) -> dict[str, ModelInfo]: ...

    def register(self, model: ModelInfo) -> None: ...

    def forget(self, model: str, storage: str) -> bool: ...


class Shelf:
    """Looked at by one thread, as often as it is to be up to date."""

    def __init__(
        self,
        board: Catalogue,
        storage: str,
        *,
        revisions: Callable[[], Mapping[str, str]],
        describe: Callable[[str], ModelInfo],
    ) -> None:
        self._board = board
        self._storage = storage
        self._revisions = revisions
        self._describe = describe
        # name to revision, as the board was told; absent before the first look
        self._told: dict[str, str | None] | None = None

    def look(self) -> tuple[str, ...]:
        """Names of the models that lie here now. What is told in vain, because the board cannot
        be reached, is told again at the next look."""
        told = self._before() if self._told is None else self._told
        found = dict(self._revisions())
        for name, revision in found.items():
            if told.get(name) != revision:
                self._register(name)
        for name in told.keys() - found.keys():
            self._board.forget(name, self._storage)
            LOG.info("model %s is gone from the storage", name, extra={"event": "model_gone"})
        self._told = dict(found)
        return tuple(found)

    def _before(self) -> dict[str, str | None]:
        """What the board believes to lie here, maybe from a time when no pool was up."""
        known = self._board.models().values()
        return {one.name: None for one in known if one.storage == self._storage and not one.planned}

    def _register(self, name: str) -> None:
        try:
            model = self._describe(name)
        except CheckpointError as error:
            # it is told of once; jobs that name it fail in the same words
            LOG.warning("model %s cannot be used: %s", name, error, extra={"event": "model_bad"})
        else:
            self._board.register(model)
