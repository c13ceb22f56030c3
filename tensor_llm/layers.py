"""The parts of a decoder layer: norm, rotary embedding, grouped-query attention, SwiGLU.

Knows nothing of how layers are stacked, sampled or stored.

Letters: B rows, T tokens, H query heads, K key/value heads, D head size, E residual width,
F inner width."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensor_llm.attention import Attending
from tensor_llm.config import ModelConfig
from tensor_llm.rotary import frequencies


class RMSNorm(nn.Module):
    """Root mean square norm (Zhang and Sennrich 2019), computed in float32."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        y = F.rms_norm(x.float(), (x.shape[-1],), self.weight.float(), self.epsilon)
        return y.to(x.dtype)


class Angles:
    """Cosines and sines that turn queries and keys to their positions (RoPE, Su et al. 2021,
    in its half-split form). Made once a call and shared by all layers."""

    def __init__(self, position_BT: Tensor, config: ModelConfig) -> None:
        frequency_D, scale = frequencies(config, position_BT.device)
        # float32 whatever the weights: bfloat16 cannot tell positions above 256 apart
        angle_BT1D = (position_BT.float()[..., None] * frequency_D).unsqueeze(2)
        cos_BT1D, sin_BT1D = angle_BT1D.cos() * scale, angle_BT1D.sin() * scale
        self.cos_BT1D = torch.cat((cos_BT1D, cos_BT1D), dim=-1)
        self.sin_BT1D = torch.cat((-sin_BT1D, sin_BT1D), dim=-1)

    def turn(self, x_BTHD: Tensor) -> Tensor:
        swapped_BTHD = torch.roll(x_BTHD, x_BTHD.shape[-1] // 2, dims=-1)
        return (x_BTHD * self.cos_BT1D + swapped_BTHD * self.sin_BT1D).to(x_BTHD.dtype)


class Attention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023) with rotary positions; in some families
    with a norm of each head's queries and keys."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.head_size = config.head_size
        query_width, kv_width = self.heads * self.head_size, self.kv_heads * self.head_size
        bias = config.query_key_value_bias
        self.query = nn.Linear(config.hidden, query_width, bias=bias)
        self.key = nn.Linear(config.hidden, kv_width, bias=bias)
        self.value = nn.Linear(config.hidden, kv_width, bias=bias)
        self.output = nn.Linear(query_width, config.hidden, bias=config.output_bias)
        self.query_norm: RMSNorm | None = None
        self.key_norm: RMSNorm | None = None
        if config.query_key_norm:
            self.query_norm = RMSNorm(self.head_size, config.norm_epsilon)
            self.key_norm = RMSNorm(self.head_size, config.norm_epsilon)

    def forward(self, x_BTE: Tensor, angles: Angles, layer: int, attending: Attending) -> Tensor:
        B, T, _ = x_BTE.shape
        q_BTHD = self.query(x_BTE).view(B, T, self.heads, self.head_size)
        k_BTKD = self.key(x_BTE).view(B, T, self.kv_heads, self.head_size)
        if self.query_norm is not None and self.key_norm is not None:
            q_BTHD, k_BTKD = self.query_norm(q_BTHD), self.key_norm(k_BTKD)
        q_BTHD, k_BTKD = angles.turn(q_BTHD), angles.turn(k_BTKD)
        v_BTKD = self.value(x_BTE).view(B, T, self.kv_heads, self.head_size)
        out_BTHD = attending.attend(layer, q_BTHD, k_BTKD, v_BTKD)
        out_BTE: Tensor = self.output(out_BTHD.reshape(B, T, self.heads * self.head_size))
        return out_BTE


class SwiGLU(nn.Module):
    """Gated MLP (Shazeer 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.hidden, config.mlp, bias=config.mlp_bias)
        self.up = nn.Linear(config.hidden, config.mlp, bias=config.mlp_bias)
        self.down = nn.Linear(config.mlp, config.hidden, bias=config.mlp_bias)

    def forward(self, x_BTE: Tensor) -> Tensor:
        y_BTF = F.silu(self.gate(x_BTE)) * self.up(x_BTE)
        y_BTE: Tensor = self.down(y_BTF)
        return y_BTE


class Layer(nn.Module):
    """Attention and MLP, each behind a norm and beside a residual path."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden, config.norm_epsilon)
        self.attention = Attention(config)
        self.mlp_norm = RMSNorm(config.hidden, config.norm_epsilon)
        self.mlp = SwiGLU(config)

    def forward(self, x_BTE: Tensor, angles: Angles, layer: int, attending: Attending) -> Tensor:
        x_BTE = x_BTE + self.attention(self.attention_norm(x_BTE), angles, layer, attending)
        y_BTE: Tensor = x_BTE + self.mlp(self.mlp_norm(x_BTE))
        return y_BTE
