"""Puts a model into memory, whole or split, as large as memory allows.

Owns the sizes: how many bytes weights and cache take, and how many rows the cache gets. Knows
nothing of who asks for a model.

A cache row holds a whole context, so that a run which was let in can always end."""

from collections.abc import Callable

import torch

from engines.tensor.device import Device, free_bytes
from engines.tensor.hybrid import HybridRunner, choose_split
from engines.tensor.library import Resident
from engines.tensor.porter import Progress
from engines.tensor.rates import RateBook
from engines.tensor.runner import Runner, WholeRunner
from noidle.snapshot import ModelInfo
from tensor_llm.cache import KVCache
from tensor_llm.checkpoint import LoadedModel, Place, load_model
from tensor_llm.config import ModelConfig
from tensor_llm.store import ModelStore, read_config

USABLE = 0.9
"""Share of free memory that models may take; the rest is for activations and others."""
SMALLEST_CAPACITY = 256
"""Tokens; a context that does not fit in memory is cut down to no less."""


class MemoryOpener:
    """Opens models for `slots` runs at once on the engine's device."""

    def __init__(
        self,
        store: ModelStore,
        device: Device,
        *,
        slots: int,
        limit_bytes: int | None,
        rates: RateBook,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._device = device
        self._slots = slots
        self._limit_bytes = limit_bytes
        self._rates = rates
        self._clock = clock

    def room_bytes(self, taken: int) -> int | None:
        if self._limit_bytes is not None:
            return self._limit_bytes - taken
        places = {self._device.first, self._device.main}
        free = [free_bytes(place) for place in places]
        known = [one for one in free if one is not None]
        return int(sum(known) * USABLE) if len(known) == len(free) else None

    def needed_bytes(self, info: ModelInfo) -> int:
        config = self._config(info)
        return self._weight_bytes(config) + self._row_bytes(config, self._smallest(config))

    def open(self, info: ModelInfo, room_bytes: int | None, progress: Progress) -> Resident:
        began_s = self._clock()
        config = self._config(info)
        rows, capacity = self._cache_size(config, room_bytes)
        loaded, runner = self._runner(info, config, rows, capacity, progress)
        weight_bytes = self._weight_bytes(config)
        self._device.wait()
        self._rates.load.add(weight_bytes, self._clock() - began_s)
        return Resident(
            name=loaded.name,
            revision=loaded.revision,
            tokenizer=loaded.tokenizer,
            runner=runner,
            bytes=weight_bytes + rows * self._row_bytes(config, capacity),
            used_at_s=self._clock(),
        )

    def _runner(
        self, info: ModelInfo, config: ModelConfig, rows: int, capacity: int, progress: Progress
    ) -> tuple[LoadedModel, Runner]:
        device, dtype = self._device, self._device.dtype
        if device.second is None:
            loaded = self._load(info, lambda _: device.first, progress)
            cache = KVCache(config, rows=rows, device=device.first, dtype=dtype, capacity=capacity)
            return loaded, WholeRunner(loaded.model, cache)
        split = choose_split(
            config,
            device,
            rows=rows,
            most_on_second=self._most_on_second(config, rows, capacity),
            on_part=progress.mark,
        )
        loaded = self._load(info, split.device_of, progress)
        return loaded, HybridRunner(loaded.model, split, rows=rows, capacity=capacity, dtype=dtype)

    def _most_on_second(self, config: ModelConfig, rows: int, capacity: int) -> int:
        """Layers, with their cache, that the second device has memory for beside the head."""
        free = None if self._device.main.type == "cpu" else free_bytes(self._device.main)
        if free is None:
            return config.layers
        table = config.vocabulary * config.hidden * self._device.dtype.itemsize
        layers = self._weight_bytes(config) - table * (1 if config.tied_head else 2)
        layer = (layers + rows * self._row_bytes(config, capacity)) // config.layers
        return max(0, int((free * USABLE - table) // layer))

    def _load(
        self, info: ModelInfo, place: Callable[[str], torch.device], progress: Progress
    ) -> LoadedModel:
        def marked(tensor_name: str) -> torch.device:
            # asked once for each tensor: a sign of life from the middle of a load
            progress.mark()
            return place(tensor_name)

        wanted: Place = marked
        return load_model(
            self._store, info.name, info.revision, place=wanted, dtype=self._device.dtype
        )

    def _config(self, info: ModelInfo) -> ModelConfig:
        return read_config(self._store.directory(info.name, info.revision))

    def _weight_bytes(self, config: ModelConfig) -> int:
        return config.parameters * self._device.dtype.itemsize

    def _row_bytes(self, config: ModelConfig, capacity: int) -> int:
        return config.kv_bytes_per_token(self._device.dtype.itemsize) * capacity

    def _smallest(self, config: ModelConfig) -> int:
        return min(config.context, SMALLEST_CAPACITY)

    def _cache_size(self, config: ModelConfig, room_bytes: int | None) -> tuple[int, int]:
        """Rows, and tokens a row."""
        if room_bytes is None:
            return self._slots, config.context
        left = room_bytes - self._weight_bytes(config)
        rows = left // self._row_bytes(config, config.context)
        if rows >= 1:
            return min(self._slots, rows), config.context
        return 1, max(self._smallest(config), left // self._row_bytes(config, 1))
