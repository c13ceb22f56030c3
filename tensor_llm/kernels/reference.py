"""The decode step in plain torch: what the C++ step must equal, and what serves where there is
none.

Letters: M rows (tokens), S sequences, E residual width, H query heads, K key/value heads,
G = H / K, D head size, X blocks of a sequence, C tokens of a block, L positions, V vocabulary,
W wanted rows."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tensor_llm.kernels.plan import DecoderPlan, KVBlocks, LayerPlan, Projection
from tensor_llm.kernels.rows import Rows
from tensor_llm.quantization import PackedWeight


def step(plan: DecoderPlan, rows: Rows, blocks: KVBlocks, x_ME: Tensor) -> Tensor:
    """What the layers make of `x`, in float32; writes the rows' keys and values."""
    x_ME, table_MX = x_ME.float(), rows.table_SX[rows.sequence_M]
    angle_M1D = (rows.position_M.float()[:, None] * plan.frequency_D.float()).unsqueeze(1)
    cos_M1D, sin_M1D = (part * plan.rotary_scale for part in (angle_M1D.cos(), angle_M1D.sin()))
    for layer, keys, values in zip(plan.layers, blocks.keys, blocks.values, strict=True):
        normed_ME = _norm(x_ME, layer.attention_norm_E, plan)
        q_MHD = _heads(normed_ME, layer.query, layer.query_norm_D, plan)
        k_MKD = _heads(normed_ME, layer.key, layer.key_norm_D, plan)
        v_MKD = _apply(normed_ME, layer.value).view(k_MKD.shape)
        q_MHD, k_MKD = (_turn(part, cos_M1D, sin_M1D) for part in (q_MHD, k_MKD))
        _store(keys, k_MKD, rows.position_M, table_MX)
        _store(values, v_MKD, rows.position_M, table_MX)
        out_MHD = _attend(q_MHD, keys, values, rows.position_M, table_MX, layer.window)
        x_ME = x_ME + _apply(out_MHD.flatten(1), layer.output)
        x_ME = x_ME + _mlp(_norm(x_ME, layer.mlp_norm_E, plan), layer)
    return x_ME


def embed(plan: DecoderPlan, token_M: Tensor) -> Tensor:
    """(M, E) in float32."""
    weight = plan.embedding
    assert weight is not None
    return weight.pick(token_M) if isinstance(weight, PackedWeight) else weight[token_M].float()


def head(plan: DecoderPlan, x_WE: Tensor) -> Tensor:
    """Logits (W, V) in float32."""
    assert plan.norm_E is not None
    assert plan.head is not None
    return _apply(_norm(x_WE, plan.norm_E, plan), plan.head)


def _apply(x_ME: Tensor, projection: Projection) -> Tensor:
    weight = projection.weight
    dense = weight.dequantize() if isinstance(weight, PackedWeight) else weight.float()
    bias_N = projection.bias_N
    return F.linear(x_ME, dense, None if bias_N is None else bias_N.float())


def _norm(x: Tensor, weight: Tensor, plan: DecoderPlan) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight.float(), plan.norm_epsilon)


def _heads(
    normed_ME: Tensor, projection: Projection, norm_D: Tensor | None, plan: DecoderPlan
) -> Tensor:
    x_MHD = _apply(normed_ME, projection).view(len(normed_ME), -1, plan.head_size)
    return x_MHD if norm_D is None else _norm(x_MHD, norm_D, plan)


def _turn(x_MHD: Tensor, cos_M1D: Tensor, sin_M1D: Tensor) -> Tensor:
    a_MHD, b_MHD = x_MHD.chunk(2, dim=-1)
    return torch.cat((a_MHD * cos_M1D - b_MHD * sin_M1D, b_MHD * cos_M1D + a_MHD * sin_M1D), dim=-1)


def _store(to_PCKD: Tensor, x_MKD: Tensor, position_M: Tensor, table_MX: Tensor) -> None:
    tokens = to_PCKD.shape[1]
    block_M = table_MX.gather(1, (position_M // tokens)[:, None])[:, 0]
    to_PCKD[block_M, position_M % tokens] = x_MKD.to(to_PCKD.dtype)


def _attend(
    q_MHD: Tensor,
    keys_PCKD: Tensor,
    values_PCKD: Tensor,
    position_M: Tensor,
    table_MX: Tensor,
    window: int | None,
) -> Tensor:
    k_MLKD = keys_PCKD[table_MX].flatten(1, 2).float()
    v_MLKD = values_PCKD[table_MX].flatten(1, 2).float()
    M, H, D = q_MHD.shape
    q_MKGD = q_MHD.view(M, k_MLKD.shape[2], -1, D)
    score_MKGL = torch.einsum("mkgd,mlkd->mkgl", q_MKGD, k_MLKD) / D**0.5
    at_L = torch.arange(k_MLKD.shape[1])
    seen_ML = at_L <= position_M[:, None]
    if window is not None:
        seen_ML &= at_L > position_M[:, None] - window
    weight_MKGL = score_MKGL.masked_fill(~seen_ML[:, None, None], -torch.inf).softmax(-1)
    return torch.einsum("mkgl,mlkd->mkgd", weight_MKGL, v_MLKD).reshape(M, H, D)


def _mlp(normed_ME: Tensor, layer: LayerPlan) -> Tensor:
    inner_MF = F.silu(_apply(normed_ME, layer.gate)) * _apply(normed_ME, layer.up)
    return _apply(inner_MF, layer.down)
