"""Scaled dot-product attention in the forms a decoder needs, and what a layer asks of whoever
keeps keys and values for it.

Knows nothing of weights or caches.

Letters: B rows, T queries, S keys, H query heads, K key/value heads, G = H / K, D head size."""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from tensor_llm.config import ModelConfig


class Attending(Protocol):
    """What the tokens of one call see; layers ask it in their order."""

    @property
    def position_BT(self) -> Tensor:  # noqa: N802  tensors carry shape suffixes
        """Place of each token in its own sequence; one row may stand for all."""

    def attend(self, layer: int, q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
        """Keeps `k` and `v` where it caches, and lets each query see what the layer's window
        allows it. Returns (B, T, H, D)."""


class WholeSequences:
    """Each row is a whole sequence from its first token; nothing is kept."""

    def __init__(self, position_BT: Tensor, config: ModelConfig) -> None:
        self.position_BT = position_BT
        self._config = config

    def attend(self, layer: int, q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
        T = q_BTHD.shape[1]
        window = self._config.window_of(layer)
        if window is None or window >= T:
            return attend_causal(q_BTHD, k_BTKD, v_BTKD)
        seen_TT = torch.ones(T, T, dtype=torch.bool, device=q_BTHD.device).tril().triu(1 - window)
        return attend_past(q_BTHD, k_BTKD, v_BTKD, seen_TT.expand(len(q_BTHD), T, T))


def attend_causal(q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
    """Each token sees itself and those before it; grouped-query where K < H.

    Returns (B, T, H, D).
    """
    out_BHTD = F.scaled_dot_product_attention(
        q_BTHD.transpose(1, 2),
        k_BTKD.transpose(1, 2),
        v_BTKD.transpose(1, 2),
        is_causal=q_BTHD.shape[1] > 1,
        enable_gqa=q_BTHD.shape[2] != k_BTKD.shape[2],
    )
    return out_BHTD.transpose(1, 2)


def attend_past(q_BTHD: Tensor, k_BSKD: Tensor, v_BSKD: Tensor, seen_BTS: Tensor) -> Tensor:
    """Each token sees the keys that `seen` (bool) allows it, at least one.

    The queries that share a key head are laid along the query axis, so that keys and values
    are read once and never repeated. Returns (B, T, H, D).
    """
    B, T, H, D = q_BTHD.shape
    S, K = k_BSKD.shape[1:3]
    G = H // K
    q_BKGTD = q_BTHD.view(B, T, K, G, D).permute(0, 2, 3, 1, 4)
    out_BKXD = F.scaled_dot_product_attention(
        q_BKGTD.reshape(B, K, G * T, D),
        k_BSKD.transpose(1, 2),
        v_BSKD.transpose(1, 2),
        attn_mask=seen_BTS[:, None, None].expand(B, 1, G, T, S).reshape(B, 1, G * T, S),
    )
    return out_BKXD.view(B, K, G, T, D).permute(0, 3, 1, 2, 4).reshape(B, T, H, D)


def attend_decode(
    q_B1HD: Tensor,
    keys_PCKD: Tensor,
    values_PCKD: Tensor,
    table_BX: Tensor,
    length_B: Tensor,
    window: int | None = None,
) -> Tensor:
    """The newest token of each sequence sees its past over blocks, itself included.

    `table` names each sequence's blocks in order; what lies behind `length` is not seen.
    Returns (B, 1, H, D).
    """
    C = keys_PCKD.shape[1]
    first_B = torch.zeros_like(length_B)
    if window is not None and table_BX.shape[1] > window // C + 2:
        # only the blocks that a window can touch are read
        first_B = (length_B - window).clamp(min=0) // C
        place_BX = first_B[:, None] + torch.arange(window // C + 2, device=length_B.device)
        table_BX = table_BX.gather(1, place_BX.clamp(max=table_BX.shape[1] - 1))
    k_BSKD, v_BSKD = (
        part_PCKD[table_BX].flatten(1, 2).to(q_B1HD.dtype) for part_PCKD in (keys_PCKD, values_PCKD)
    )
    at_BS = first_B[:, None] * C + torch.arange(k_BSKD.shape[1], device=length_B.device)
    seen_BS = at_BS < length_B[:, None]
    if window is not None:
        seen_BS &= at_BS >= length_B[:, None] - window
    return attend_past(q_B1HD, k_BSKD, v_BSKD, seen_BS[:, None])


def attend_chunk(
    q_1THD: Tensor,
    keys_PCKD: Tensor,
    values_PCKD: Tensor,
    table_X: Tensor,
    start: int,
    window: int | None = None,
) -> Tensor:
    """Tokens of one sequence from position `start` on see the past and those among themselves
    that came before; all of their keys and values are in blocks. Returns (1, T, H, D)."""
    _, T, H, D = q_1THD.shape
    C, K = keys_PCKD.shape[1:3]
    low = 0 if window is None else max(0, start + 1 - window) // C
    table_X = table_X[low : (start + T - 1) // C + 1]
    k_SKD, v_SKD = (
        part_PCKD[table_X].flatten(0, 1)[: start + T - low * C].to(q_1THD.dtype)
        for part_PCKD in (keys_PCKD, values_PCKD)
    )
    at_T = torch.arange(start, start + T, device=q_1THD.device)[:, None]
    at_S = torch.arange(low * C, start + T, device=q_1THD.device)
    seen_TS = at_S <= at_T
    if window is not None:
        seen_TS &= at_S > at_T - window
    G, S = H // K, len(k_SKD)
    # a row a key head, so that keys and values are read by all of its queries and not repeated
    out_KGTD = F.scaled_dot_product_attention(
        q_1THD[0].view(T, K, G, D).permute(1, 2, 0, 3),
        k_SKD.transpose(0, 1)[:, None].expand(K, G, S, D),
        v_SKD.transpose(0, 1)[:, None].expand(K, G, S, D),
        attn_mask=seen_TS,
    )
    return out_KGTD.permute(2, 0, 1, 3).reshape(1, T, H, D)
