"""One decoder for the Llama family, written to be read.

A step is *ragged*: the tokens of all its sequences lie one after the other in one row of length T,
with no padding, and `positions` gives each token's position in its own sequence. Every operation except
attention works on each token alone, so it needs no information about sequences. Attention is a function
that the caller passes in. Only this function knows where the keys and values of earlier tokens are stored.
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

q and k are already normed (if the model does this) and rotated. The function stores k and v, scales the
scores by D ** -0.5, and applies the causal mask. q, k and v are views into wider tensors: their last two
dimensions are contiguous, their first is strided.
"""


class Decoder(nn.Module):
    """Computes hidden states and logits from token ids and positions.

    Args:
        config: the model's shape.
        dtype: the dtype of weights and activations.
        device: where the weights live.

    The weights are uninitialised until a loader fills `weight_views()`.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, dtype=dtype, device=device)
        layers = nn.ModuleList(Layer(config, dtype, device) for _ in range(config.num_layers))
        self.layers = cast(list[Layer], layers)  # a ModuleList does not give the type of its elements
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype, device=device)
        self.rotary = RotaryEmbedding(config.rope, config.head_dim, device)
        if config.tie_word_embeddings:
            # Both use the same memory. A token's row is its embedding, and also the weights of its logit.
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
            positions: [T] int64, each token's position in its own sequence, from 0.
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
            hidden [T, hidden], the tokens' word embeddings; cos and sin [T, 1, D / 2], of the angles by
            which the tokens' queries and keys are rotated.
        """
        hidden = self.embed_tokens(token_ids)  # [T, hidden]
        return hidden, *self.rotary(positions, hidden.dtype)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores every token of the vocabulary, for the given rows only.

        Only rows that sample need logits. The product is large (hidden × vocab_size per row), so the
        caller picks these rows first.

        Args:
            hidden: [R, hidden], rows of `forward`'s result.

        Returns:
            [R, vocab_size] float32.
        """
        return self.lm_head(hidden).to(torch.float32)

    def weight_views(self) -> dict[str, Tensor]:
        """For each Hugging Face tensor name, the view that this tensor must be copied into.

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
