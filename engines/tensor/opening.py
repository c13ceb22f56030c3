"""Puts a model into memory, whole or split, with as large a cache as memory allows.

Owns the sizes: how many bytes the weights take as they will lie, and how many tokens the cache
holds. Knows nothing of who asks for a model.

The cache holds at least one longest run, so that one which was let in can always end."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import torch

from engines.tensor.device import Device, free_bytes, narrow_on_cpu
from engines.tensor.hybrid import HybridExecutor, choose_split
from engines.tensor.library import Resident
from engines.tensor.porter import Progress
from engines.tensor.rates import RateBook
from engines.tensor.step_memory import step_memory
from engines.tensor.touch import touch
from noidle.snapshot import ModelInfo
from tensor_llm.checkpoint import LoadedModel, load_model
from tensor_llm.config import ModelConfig
from tensor_llm.kernels.builder import must_build
from tensor_llm.kernels.library import best_kernels
from tensor_llm.memory_report import MemoryReport, memory_report
from tensor_llm.page_cache import resident_share, temperature
from tensor_llm.serving.core import Core
from tensor_llm.serving.opening import kv_dtype_of, open_core
from tensor_llm.store import ModelStore, read_config

USABLE = 0.9
"""Share of free memory that models may take; the rest is for activations and others."""
CACHE_SHARE = 0.5
"""Of what the weights leave, the cache takes so much at most: others may want to be loaded."""
SMALLEST_CAPACITY = 256
"""Tokens; a context that does not fit in memory is cut down to no less."""
BUILDING_PATIENCE_S = 900.0
"""A compiler gives no sign of life, and several engines may build at once on few cores."""
BLOCK_TOKENS = 16
"""Of a split model; what is whole chooses for itself."""
STEP_TOKENS = 32
"""A cache is a multiple of this: whole blocks, whichever there are."""


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
        part_tokens: Callable[[str], int],
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        """`part_tokens`: of prompts, to be read in a model's next step; `say` is told of loads."""
        self._store, self._device = store, device
        self._slots, self._limit_bytes = slots, limit_bytes
        self._rates, self._part_tokens = rates, part_tokens
        self._say, self._clock = say, clock
        # usable while no model was in memory
        self._whole_bytes: int | None = None

    def room_bytes(self, taken: int) -> int | None:
        if self._limit_bytes is not None:
            return self._limit_bytes - taken
        places = {self._device.first, self._device.main}
        free = [free_bytes(place) for place in places]
        known = [one for one in free if one is not None]
        if len(known) < len(free):
            return None
        usable = int(sum(known) * USABLE)
        if self._device.first.type != "cpu":
            return usable
        if not taken or self._whole_bytes is None:
            self._whole_bytes = usable + taken
        # what a cache was given and has not used yet still looks free on the host
        return min(usable, self._whole_bytes - taken)

    def prepare(self, progress: Progress) -> None:
        """Has the C++ kernels, which are built once a machine."""
        if self._device.first.type != "cpu":
            return
        if must_build():
            self._say("building the C++ kernels, this once; a minute, more on busy cores")
        with progress.patient(BUILDING_PATIENCE_S):
            best_kernels()

    def needed_bytes(self, info: ModelInfo) -> int:
        folder = self._folder(info)
        config = read_config(folder)
        item_bytes = self._device.dtype.itemsize if self._device.dtype else 4
        tokens = _whole_steps(min(config.context, SMALLEST_CAPACITY))
        return self._weight_bytes(folder, config) + _cache_bytes(config, tokens, item_bytes)

    def open(self, info: ModelInfo, room_bytes: int | None, progress: Progress) -> Resident:
        began_s, before_bytes = self._clock(), _working_set_bytes()
        folder = self._folder(info)
        config = read_config(folder)
        held = resident_share(sorted(folder.glob("*.safetensors")))
        weight_bytes = self._weight_bytes(folder, config)
        left = None if room_bytes is None else room_bytes - weight_bytes
        put = self._split if self._device.second is not None else self._whole
        loaded, core, cache_bytes = put(info, config, left, progress)
        self._device.wait()
        spent_s = self._clock() - began_s
        # by the size that others know: narrow weights take less in memory than in files
        self._rates.load.add(info.weight_bytes or weight_bytes, spent_s)
        self._rates.of(info.name).weight_bytes = info.weight_bytes
        resident = Resident(
            name=loaded.name,
            revision=loaded.revision,
            tokenizer=loaded.tokenizer,
            chat=loaded.chat,
            core=core,
            context=config.context,
            capacity=min(config.context, core.kv_tokens_total),
            eos_tokens=_eos_tokens(loaded),
            weight_bytes=weight_bytes,
            cache_bytes=cache_bytes,
            step_memory=step_memory(partial(self._report, folder), config, self._slots),
            used_at_s=self._clock(),
        )
        self._say(
            f"{resident.name} {resident.revision} is in memory after {spent_s * 1000:.0f} ms "
            f"({temperature(held)}): {_mib(weight_bytes)} of weights, cache for "
            f"{core.kv_tokens_total} tokens in {_mib(cache_bytes)}; working set "
            f"{_mib(before_bytes)} before, {_mib(_working_set_bytes())} now"
        )
        return resident

    def _whole(
        self, info: ModelInfo, config: ModelConfig, left: int | None, progress: Progress
    ) -> tuple[LoadedModel, Core, int]:
        place = self._device.first
        loaded = self._load(info, lambda _: place, progress)
        touch(loaded.model, progress)
        dtype = kv_dtype_of(loaded, place)
        tokens = self._cache_tokens(config, left, dtype.itemsize)
        core = open_core(
            loaded,
            device=place,
            rows=self._slots,
            kv_tokens=tokens,
            chunk=partial(self._part_tokens, loaded.name),
            kv_dtype=dtype,
            clock=self._clock,
        )
        return loaded, core, _cache_bytes(config, tokens, dtype.itemsize)

    def _split(
        self, info: ModelInfo, config: ModelConfig, left: int | None, progress: Progress
    ) -> tuple[LoadedModel, Core, int]:
        dtype = self._device.dtype
        assert dtype is not None
        tokens = self._cache_tokens(config, left, dtype.itemsize)
        cache_bytes = _cache_bytes(config, tokens, dtype.itemsize)
        split = choose_split(
            config,
            self._device,
            dtype=dtype,
            rows=self._slots,
            most_on_second=self._most_on_second(info, config, cache_bytes),
            on_part=progress.mark,
        )
        loaded = self._load(info, split.device_of, progress)
        executor = HybridExecutor(
            loaded.model,
            split,
            blocks=tokens // BLOCK_TOKENS,
            block_tokens=BLOCK_TOKENS,
            dtype=dtype,
        )
        core = Core(
            executor,
            rows=self._slots,
            chunk_tokens=partial(self._part_tokens, loaded.name),
            salt=f"{loaded.name}/{loaded.revision}",
            clock=self._clock,
        )
        return loaded, core, cache_bytes

    def _most_on_second(self, info: ModelInfo, config: ModelConfig, cache_bytes: int) -> int:
        """Layers, with their cache, that the second device has memory for beside the head."""
        free = None if self._device.main.type == "cpu" else free_bytes(self._device.main)
        if free is None:
            return config.layers
        assert self._device.dtype is not None
        # the embedding on one side, the head on the other, tied or not
        table = config.vocabulary * config.hidden * self._device.dtype.itemsize
        layers = self._weight_bytes(self._folder(info), config) - 2 * table
        layer = (layers + cache_bytes) // config.layers
        return max(0, int((free * USABLE - table) // layer))

    def _load(
        self, info: ModelInfo, place: Callable[[str], torch.device], progress: Progress
    ) -> LoadedModel:
        def marked(tensor_name: str) -> torch.device:
            # asked once for each tensor: a sign of life from the middle of a load
            progress.mark()
            return place(tensor_name)

        return load_model(
            self._store,
            info.name,
            info.revision,
            place=marked,
            dtype=self._dense(),
            format=self._device.format,
        )

    def _folder(self, info: ModelInfo) -> Path:
        return self._store.directory(info.name, info.revision)

    def _dense(self) -> torch.dtype | None:
        """The type of dense weights; None: as they are stored."""
        device = self._device
        if device.dtype is not None or device.format is not None:
            return device.dtype
        # without kernels narrow weights are no faster, and on some processors far slower
        return None if best_kernels() is not None or narrow_on_cpu() else torch.float32

    def _weight_bytes(self, folder: Path, config: ModelConfig) -> int:
        device, report = self._device, self._report(folder, 1)
        found = sum(sum(one.weight_bytes.values()) for one in report.devices)
        if device.main != device.first and config.tied_head:
            assert device.dtype is not None
            # on two devices its head is a copy
            found += config.vocabulary * config.hidden * device.dtype.itemsize
        return found

    def _report(self, folder: Path, chunk: int) -> MemoryReport:
        return memory_report(
            folder,
            kv_tokens=0,
            chunk=chunk,
            dtype=self._dense(),
            format=self._device.format,
            device=str(self._device.main),
        )

    def _cache_tokens(self, config: ModelConfig, left: int | None, item_bytes: int) -> int:
        """What all slots want, at most what memory allows, and at least
        one context, or as much of it as there is memory for."""
        context = _whole_steps(config.context)
        wanted = self._slots * context
        if left is None:
            return wanted
        step_bytes = _cache_bytes(config, STEP_TOKENS, item_bytes)
        most = left // step_bytes * STEP_TOKENS
        share = int(left * CACHE_SHARE) // step_bytes * STEP_TOKENS
        smallest = _whole_steps(min(config.context, SMALLEST_CAPACITY))
        return max(smallest, min(wanted, max(share, min(context, most))))


def _eos_tokens(loaded: LoadedModel) -> frozenset[int]:
    """Those of the config; where it names none, the tokenizer's own."""
    own = loaded.tokenizer.eos_token
    return frozenset(loaded.model.config.eos_tokens or ([] if own is None else [own]))


def _whole_steps(tokens: int) -> int:
    return -(-tokens // STEP_TOKENS) * STEP_TOKENS


def _cache_bytes(config: ModelConfig, tokens: int, item_bytes: int) -> int:
    return tokens * config.kv_bytes_per_token(item_bytes)


def _working_set_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"
