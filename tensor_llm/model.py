"""The decoder: tokens in, logits out.

Owns the weights and the order of the steps, each of them public so that layers can lie on
different devices. Knows nothing of sampling, text or files.

Letters: B rows, T tokens, E residual width, V vocabulary."""

import math

import torch
from torch import Tensor, nn

from tensor_llm.attention import Attending, WholeSequences
from tensor_llm.config import ModelConfig
from tensor_llm.layers import Angles, Layer, RMSNorm
from tensor_llm.shapes import check_shape


class Decoder(nn.Module):
    """Pre-norm transformer decoder.

    `forward` reads whole sequences (training). `embed`, `run_layers` and `head` are the same path
    in pieces, with whatever keeps keys and values; between them the caller moves activations
    where the next piece lies. Callers of the pieces see to `torch.inference_mode`.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        # not initialised: torch loads two seconds of symbolic maths to do that on no device
        table = torch.empty(config.vocabulary, config.hidden)
        self.embedding = nn.Embedding(config.vocabulary, config.hidden, _weight=table)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.norm_epsilon)
        self.output = nn.Linear(config.hidden, config.vocabulary, bias=False)
        self.tie()

    def tie(self) -> None:
        """Makes the head read the embedding's weights, where the config says so."""
        if self.config.tied_head:
            self.output.weight = self.embedding.weight

    def embed(self, token_BT: Tensor) -> Tensor:
        """Token ids (int64) to (B, T, E)."""
        check_shape("token_BT", token_BT, None, None)
        x_BTE: Tensor = self.embedding(token_BT)
        return x_BTE

    def run_layers(
        self,
        x_BTE: Tensor,
        *,
        start: int = 0,
        stop: int | None = None,
        attending: Attending | None = None,
    ) -> Tensor:
        """The layers [start, stop); without `attending` each row is a whole sequence from its
        first token."""
        check_shape("x_BTE", x_BTE, None, None, self.config.hidden)
        if attending is None:
            position_BT = torch.arange(x_BTE.shape[1], device=x_BTE.device)[None]
            attending = WholeSequences(position_BT, self.config)
        else:
            check_shape("x_BTE", x_BTE, *attending.position_BT.shape, self.config.hidden)
        angles = Angles(attending.position_BT, self.config)
        stop = self.config.layers if stop is None else stop
        for index in range(start, stop):
            x_BTE = self.layers[index](x_BTE, angles, index, attending)
        return x_BTE

    def head(self, x_BTE: Tensor) -> Tensor:
        """(B, T, E) to logits (B, T, V) in float32."""
        check_shape("x_BTE", x_BTE, None, None, self.config.hidden)
        logits_BTV: Tensor = self.output(self.norm(x_BTE))
        return logits_BTV.float()

    def forward(self, token_BT: Tensor) -> Tensor:
        """Logits (B, T, V) of whole sequences, without a cache."""
        return self.head(self.run_layers(self.embed(token_BT)))


def new_decoder(config: ModelConfig, seed: int) -> Decoder:
    """A decoder with random weights; the same seed gives the same weights."""
    with torch.device("meta"):
        decoder = Decoder(config)
    decoder.to_empty(device="cpu")
    decoder.tie()
    generator = torch.Generator().manual_seed(seed % 2**63)
    # each of the 2 * layers residual branches adds its share, so that depth keeps the scale
    branch = 1 / math.sqrt(2 * config.layers)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            scale = branch if name.endswith(("attention.output.weight", "mlp.down.weight")) else 1
            std = scale / math.sqrt(config.hidden)
            parameter.normal_(0.0, std, generator=generator)
    return decoder
