"""One decoder for the Llama family, written to be read.

A step is *ragged*: the tokens of all its sequences lie one after the other in one row of length T,
with no padding, and `positions` says where each stands in its own sequence. Everything but attention
works on each token alone, so it needs to know nothing of sequences. Attention is handed in from
outside as a function: it alone knows where the keys and values of earlier tokens are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from minipaged.model.config import ModelConfig
from minipaged.model.layer import Embedding, Layer, Linear, RMSNorm
from minipaged.model.rope import RotaryEmbedding

AttendFn = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer index, q [T, Hq, D], k [T, Hkv, D], v [T, Hkv, D]) -> [T, Hq, D].

q and k are normed and rotated; the scores are not yet scaled: that (by D ** -0.5), the causal mask
and the storing of k and v are the function's. All three are views into wider tensors: their last two
dimensions are contiguous, their first is strided.
"""


class Decoder(nn.Module):
    """Token ids and positions in, hidden states and logits out.

    Args:
        config: the model's shape.
        dtype: the dtype of weights and activations.
        device: where the weights live.

    The weights are uninitialised until something fills `weight_views()`.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, dtype=dtype, device=device)
        layers = nn.ModuleList(Layer(config, dtype, device) for _ in range(config.num_layers))
        self.layers = cast(list[Layer], layers)  # a ModuleList does not say of what
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype, device=device)
        self.rotary = RotaryEmbedding(config.rope, config.head_dim, device)
        if config.tie_word_embeddings:
            # The same memory read both ways: a token's row is its input and scores it as an output.
            self.lm_head = Linear(self.embed_tokens.weight)
        else:
            self.lm_head = Linear.empty(
                config.hidden_size, config.vocab_size, bias=False, dtype=dtype, device=device
            )

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of weights and activations."""
        return self.embed_tokens.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embed_tokens.weight.device

    def forward(self, token_ids: Tensor, positions: Tensor, attend: AttendFn) -> Tensor:
        """Runs all layers over one step.

        Args:
            token_ids: [T] int64, each in [0, vocab_size).
            positions: [T] int64, each token's place in its own sequence, from 0.
            attend: called once for each layer, in order; see `AttendFn`.

        Returns:
            [T, hidden], after the final norm.
        """
        hidden, cos, sin = self.enter(token_ids, positions)
        for i, layer in enumerate(self.layers):
            q, k, v = layer.before_attention(hidden, cos, sin)
            hidden = layer.after_attention(hidden, attend(i, q, k, v))
        return self.norm(hidden)

    def enter(self, token_ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The input of the first layer.

        Args:
            token_ids, positions: as in `forward`.

        Returns:
            hidden [T, hidden], the tokens' word embeddings; cos and sin [T, 1, D / 2], of their angles.
        """
        hidden = self.embed_tokens(token_ids)  # [T, hidden]
        return hidden, *self.rotary(positions, hidden.dtype)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores every token of the vocabulary for the given rows alone.

        Only rows that sample need this, and it is a large product (hidden × vocab_size per row), so
        the caller picks those rows first.

        Args:
            hidden: [R, hidden], rows of `forward`'s result.

        Returns:
            [R, vocab_size] float32.
        """
        return self.lm_head(hidden).to(torch.float32)

    def weight_views(self) -> dict[str, Tensor]:
        """For each Hugging Face tensor name, the view that it fills.

        The views share memory with the (partly fused) parameters, so a loader can copy each tensor
        straight to its place. Together they cover every parameter exactly once.
        """
        views = {
            "model.embed_tokens.weight": self.embed_tokens.weight.data,
            "model.norm.weight": self.norm.weight.data,
        }
        for i, layer in enumerate(self.layers):
            views |= layer.weight_views(f"model.layers.{i}.")
        if not self.config.tie_word_embeddings:
            views["lm_head.weight"] = self.lm_head.weight.data
        return views
