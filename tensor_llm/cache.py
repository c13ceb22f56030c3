"""Keys and values of the tokens already read, so that each is computed once.

Owns the memory, which row belongs to whom and how long each row is. Knows nothing of weights
or scheduling.

Letters: L layers held, B rows, T tokens of this call, C row capacity, S longest row of this
call, K key/value heads, D head size."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tensor_llm.attention import attend_causal, attend_past
from tensor_llm.config import ModelConfig
from tensor_llm.shapes import check_shape


class KVCache:
    """Keys and values for up to `rows` sequences, allocated once as (L, B, C, K, D).

    Rows join and leave between calls: `claim` a row, `extend` it by the tokens of a call,
    `release` it. Lengths live on the host, so planning a call never waits for the device.
    A cache may hold the layers [start, stop) only, where a decoder is split over devices.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        rows: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        capacity: int | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        self.config = config
        self.capacity = min(capacity or config.context, config.context)
        self.start = start
        self.stop = config.layers if stop is None else stop
        self.device = torch.device(device)
        shape = (self.stop - self.start, rows, self.capacity, config.kv_heads, config.head_size)
        # zeros, not empty: a masked key has weight 0, and 0 * NaN would still be NaN
        self.k_LBCKD = torch.zeros(shape, device=self.device, dtype=dtype)
        self.v_LBCKD = torch.zeros(shape, device=self.device, dtype=dtype)
        self._lengths = [0] * rows
        self._free = list(range(rows))

    @property
    def rows(self) -> int:
        return len(self._lengths)

    @property
    def free_rows(self) -> int:
        return len(self._free)

    @property
    def bytes(self) -> int:
        return 2 * self.k_LBCKD.numel() * self.k_LBCKD.element_size()

    def length(self, row: int) -> int:
        """Tokens the row holds."""
        return self._lengths[row]

    def claim(self) -> int:
        """Takes the lowest free row, empty.

        Raises:
            ValueError: every row is taken.
        """
        if not self._free:
            raise ValueError(f"rows = {self.rows}: all are taken; release one first")
        # the lowest, so that the rows in use stay together and are read without a copy
        row = min(self._free)
        self._free.remove(row)
        return row

    def release(self, row: int) -> None:
        """Gives the row back; what it held is forgotten."""
        self._check_claimed(row)
        self._lengths[row] = 0
        self._free.append(row)

    def truncate(self, row: int, length: int) -> None:
        """Forgets the row's tokens from `length` on."""
        self._check_claimed(row)
        if not 0 <= length <= self._lengths[row]:
            raise ValueError(f"length = {length}: allowed is 0 to {self._lengths[row]}")
        self._lengths[row] = length

    def extend(self, rows: Sequence[int], tokens: int) -> "Span":
        """Makes room for `tokens` more tokens in each of the rows, and says where the layers
        of this call write and read.

        Raises:
            ValueError: a row is not claimed, named twice, or would outgrow its capacity.
        """
        if not rows or len(set(rows)) != len(rows):
            raise ValueError(f"rows = {list(rows)}: allowed are distinct rows, at least one")
        if tokens < 1:
            raise ValueError(f"tokens = {tokens}: allowed is 1 or more")
        for row in rows:
            self._check_claimed(row)
            if self._lengths[row] + tokens > self.capacity:
                raise ValueError(
                    f"row {row} holds {self._lengths[row]} tokens and cannot take {tokens} more: "
                    f"allowed are {self.capacity}"
                )
        past = [self._lengths[row] for row in rows]
        for row in rows:
            self._lengths[row] += tokens
        return Span.of(self, list(rows), past, tokens)

    def _check_claimed(self, row: int) -> None:
        if not 0 <= row < self.rows or row in self._free:
            raise ValueError(f"row = {row}: allowed is a claimed row below {self.rows}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The positions one call fills, and what its tokens may see. Made by `KVCache.extend`."""

    cache: KVCache
    # where the rows lie: a slice where they lie together, else their indices
    rows: slice | Tensor
    # rows as indices, to write with
    row_B: Tensor
    # position of each token in its own sequence
    position_BT: Tensor
    # positions to read: the longest row, present tokens included
    longest: int
    # which of them each token sees; absent where nothing came before: then plain causal
    seen_BTS: Tensor | None

    @classmethod
    def of(cls, cache: KVCache, rows: list[int], past: list[int], tokens: int) -> "Span":
        longest = max(past) + tokens
        row_B, past_B = torch.tensor([rows, past], device=cache.device).unbind(0)
        position_BT = past_B[:, None] + torch.arange(tokens, device=cache.device)
        seen_BTS = None
        if longest > tokens:
            seen_BTS = torch.arange(longest, device=cache.device) <= position_BT[:, :, None]
        together = rows == list(range(rows[0], rows[0] + len(rows)))
        return cls(
            cache=cache,
            rows=slice(rows[0], rows[0] + len(rows)) if together else row_B,
            row_B=row_B,
            position_BT=position_BT,
            longest=longest,
            seen_BTS=seen_BTS,
        )

    def attend(self, layer: int, q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
        k_BSKD, v_BSKD = self.store(layer, k_BTKD, v_BTKD)
        window = self.cache.config.window_of(layer)
        cuts = window is not None and self.longest > window
        if self.seen_BTS is None and not cuts:
            return attend_causal(q_BTHD, k_BTKD, v_BTKD)
        at_S = torch.arange(self.longest, device=self.cache.device)
        seen_BTS = at_S <= self.position_BT[:, :, None] if self.seen_BTS is None else self.seen_BTS
        if window is not None and cuts:
            seen_BTS = seen_BTS & (at_S > self.position_BT[:, :, None] - window)
        return attend_past(q_BTHD, k_BSKD, v_BSKD, seen_BTS)

    def store(self, layer: int, k_BTKD: Tensor, v_BTKD: Tensor) -> tuple[Tensor, Tensor]:
        """Writes this call's keys and values of one layer; returns all that its tokens may
        see, each (B, S, K, D)."""
        B, T = self.position_BT.shape
        K, D = self.cache.k_LBCKD.shape[3:]
        check_shape("k_BTKD", k_BTKD, B, T, K, D)
        check_shape("v_BTKD", v_BTKD, B, T, K, D)
        k_BCKD = self.cache.k_LBCKD[layer - self.cache.start]
        v_BCKD = self.cache.v_LBCKD[layer - self.cache.start]
        where = (self.row_B[:, None], self.position_BT)
        k_BCKD[where] = k_BTKD.to(k_BCKD.dtype)
        v_BCKD[where] = v_BTKD.to(v_BCKD.dtype)
        return k_BCKD[self.rows, : self.longest], v_BCKD[self.rows, : self.longest]
