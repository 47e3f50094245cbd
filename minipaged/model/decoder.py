"""One decoder for the Llama family, written to be read.

Tokens come *packed*: the tokens of all sequences in a step lie one after the other in one row of
length T, with no padding, and `positions` says where each stands in its own sequence. Everything
but attention works on each token alone, so it needs to know nothing of sequences. Attention is
handed in from outside as a function: it alone knows where the keys and values of earlier tokens
are kept.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from minipaged.model.config import ModelConfig
from minipaged.model.kernels import DecoderKernels
from minipaged.model.layers import Linear, RMSNorm, empty_parameter
from minipaged.model.packed_product import in_rows
from minipaged.model.rope import RotaryEmbedding

AttendFn = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer index, q [T, Hq, D], k [T, Hkv, D], v [T, Hkv, D]) -> [T, Hq, D].

q and k are normed and rotated; the scores are not yet scaled: that (by D ** -0.5), the causal mask
and the storing of k and v are the function's. All three are views into wider tensors: their last two
dimensions are contiguous, their first is strided.
"""


class SelfAttention(nn.Module):
    """Projections around attention: hidden -> q, k, v -> (norm, rotate) -> attend -> hidden."""

    def __init__(self, config: ModelConfig, layer: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.layer = layer
        self.num_heads = config.num_heads
        self.num_kv_heads = config.num_kv_heads
        self.head_dim = config.head_dim
        self.q_size = config.num_heads * config.head_dim
        self.kv_size = config.num_kv_heads * config.head_dim
        # One product instead of three: a step of few tokens is bound by reading weights and by
        # the overhead of each call, not by arithmetic.
        self.qkv_proj = Linear.empty(
            config.hidden_size,
            self.q_size + 2 * self.kv_size,
            bias=config.qkv_bias,
            dtype=dtype,
            device=device,
        )
        self.o_proj = Linear.empty(
            self.q_size, config.hidden_size, bias=config.o_bias, dtype=dtype, device=device
        )
        self.q_norm: RMSNorm | None = None
        self.k_norm: RMSNorm | None = None
        if config.qk_norm:
            self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps, dtype=dtype, device=device)
            self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps, dtype=dtype, device=device)

    def forward(
        self, hidden: Tensor, cos: Tensor, sin: Tensor, attend: AttendFn, kernels: DecoderKernels
    ) -> Tensor:
        """[T, hidden] -> [T, hidden]."""
        heads = self.qkv_proj(hidden, kernels).unflatten(-1, (-1, self.head_dim))  # [T, Hq + 2 Hkv, D]
        num_heads, num_rotated = self.num_heads, self.num_heads + self.num_kv_heads
        v = heads[:, num_rotated:]  # [T, Hkv, D]
        if self.q_norm is not None and self.k_norm is not None:
            q, k = (
                self.q_norm(heads[:, :num_heads], kernels),
                self.k_norm(heads[:, num_heads:num_rotated], kernels),
            )
            heads = torch.cat((q, k), dim=1)  # [T, Hq + Hkv, D]
        qk = kernels.rotate_heads(heads, num_rotated, cos, sin)  # [T, Hq + Hkv, D]
        attended = attend(self.layer, qk[:, :num_heads], qk[:, num_heads:], v)  # [T, Hq, D]
        return self.o_proj(attended.flatten(-2), kernels)

    def weight_views(self, prefix: str) -> dict[str, Tensor]:
        """Views by Hugging Face name. The rows of the fused weight are q's, then k's, then v's."""
        sizes = (self.q_size, self.kv_size, self.kv_size)
        names = ("q_proj", "k_proj", "v_proj")
        views = _split_views(self.qkv_proj, sizes, prefix, names)
        views |= _split_views(self.o_proj, (self.o_proj.out_features,), prefix, ("o_proj",))
        if self.q_norm is not None and self.k_norm is not None:
            views[f"{prefix}q_norm.weight"] = self.q_norm.weight.data
            views[f"{prefix}k_norm.weight"] = self.k_norm.weight.data
        return views


class Mlp(nn.Module):
    """The gated feed-forward layer, SwiGLU (Shazeer, arXiv 2002.05202)."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        size = config.intermediate_size
        self.gate_up_proj = Linear.empty(config.hidden_size, 2 * size, bias=False, dtype=dtype, device=device)
        self.down_proj = Linear.empty(size, config.hidden_size, bias=False, dtype=dtype, device=device)

    def forward(self, hidden: Tensor, kernels: DecoderKernels) -> Tensor:
        """[T, hidden] -> [T, hidden]."""
        gated = kernels.gate(self.gate_up_proj(hidden, kernels))  # [T, intermediate]
        return self.down_proj(gated, kernels)

    def weight_views(self, prefix: str) -> dict[str, Tensor]:
        """Views by Hugging Face name. The rows of the fused weight are gate's, then up's."""
        size = self.gate_up_proj.out_features // 2
        views = _split_views(self.gate_up_proj, (size, size), prefix, ("gate_proj", "up_proj"))
        return views | _split_views(self.down_proj, (self.down_proj.out_features,), prefix, ("down_proj",))


class Layer(nn.Module):
    """Attention and MLP, each normed before and added to what came in."""

    def __init__(self, config: ModelConfig, layer: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype, device=device)
        self.self_attn = SelfAttention(config, layer, dtype, device)
        self.post_attention_layernorm = RMSNorm(
            config.hidden_size, config.rms_norm_eps, dtype=dtype, device=device
        )
        self.mlp = Mlp(config, dtype, device)

    def forward(
        self, hidden: Tensor, cos: Tensor, sin: Tensor, attend: AttendFn, kernels: DecoderKernels
    ) -> Tensor:
        """[T, hidden] -> [T, hidden]."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden, kernels), cos, sin, attend, kernels)
        return hidden + self.mlp(self.post_attention_layernorm(hidden, kernels), kernels)

    def weight_views(self, prefix: str) -> dict[str, Tensor]:
        """Views by Hugging Face name."""
        return {
            f"{prefix}input_layernorm.weight": self.input_layernorm.weight.data,
            f"{prefix}post_attention_layernorm.weight": self.post_attention_layernorm.weight.data,
            **self.self_attn.weight_views(f"{prefix}self_attn."),
            **self.mlp.weight_views(f"{prefix}mlp."),
        }


class Decoder(nn.Module):
    """Token ids and positions in, hidden states and logits out.

    Args:
        config: the model's shape.
        dtype: of weights and activations.
        device: where the weights live.

    The weights are uninitialised until something fills `weight_views()`. `kernels` are the plain ones,
    until something sets others.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.config = config
        self.kernels = DecoderKernels()
        self.embed_tokens = empty_parameter(config.vocab_size, config.hidden_size, dtype=dtype, device=device)
        self.layers = nn.ModuleList(Layer(config, i, dtype, device) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype, device=device)
        self.rotary = RotaryEmbedding(config.rope, config.head_dim, device)
        if config.tie_word_embeddings:
            # The same memory read both ways: a token's row is its input and scores it as an output.
            self.lm_head = Linear(self.embed_tokens)
        else:
            self.lm_head = Linear.empty(
                config.hidden_size, config.vocab_size, bias=False, dtype=dtype, device=device
            )

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and activations."""
        return self.embed_tokens.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embed_tokens.device

    def forward(self, token_ids: Tensor, positions: Tensor, attend: AttendFn) -> Tensor:
        """Runs all layers over one packed step.

        Args:
            token_ids: [T] int64, each in [0, vocab_size).
            positions: [T] int64, each token's place in its own sequence, from 0.
            attend: called once for each layer, in order; see `AttendFn`.

        Returns:
            [T, hidden], after the final norm.
        """
        hidden = self.kernels.rows(token_ids, self.embed_tokens)  # [T, hidden]
        cos, sin = self.rotary(positions, hidden.dtype)  # [T, 1, D / 2] each
        for layer in self.layers:
            hidden = layer(hidden, cos, sin, attend, self.kernels)
        return self.norm(hidden, self.kernels)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores every token of the vocabulary for the given rows alone.

        Only rows that sample need this, and it is a large product (hidden × vocab_size per row), so
        the caller picks those rows first.

        Args:
            hidden: [R, hidden], rows of `forward`'s result.

        Returns:
            [R, vocab_size] float32.
        """
        return self.lm_head(hidden, self.kernels).to(torch.float32)

    def matrices(self) -> list[Tensor]:
        """The weights of all matrix products, `[out_features, in_features]` each unless packed, in order."""
        return [module.weight for module in self.modules() if isinstance(module, Linear)]

    def weight_views(self) -> dict[str, Tensor]:
        """For each Hugging Face tensor name, the view that it fills.

        The views share memory with the (partly fused) parameters, so a loader can copy each tensor
        straight to its place. Together they cover every parameter exactly once. Where the matrices have
        been packed since, theirs are copies: writing to them changes nothing.
        """
        views = {
            "model.embed_tokens.weight": in_rows(self.embed_tokens.data),
            "model.norm.weight": self.norm.weight.data,
        }
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            views |= layer.weight_views(f"model.layers.{i}.")
        if not self.config.tie_word_embeddings:
            views["lm_head.weight"] = in_rows(self.lm_head.weight.data)
        return views


def _split_views(
    linear: Linear, sizes: tuple[int, ...], prefix: str, names: tuple[str, ...]
) -> dict[str, Tensor]:
    """The rows of a (fused) projection by the names of the projections that it is made of."""
    parts = in_rows(linear.weight.data).split(sizes)
    views = {f"{prefix}{name}.weight": part for name, part in zip(names, parts, strict=True)}
    if linear.bias is not None:
        biases = linear.bias.data.split(sizes)
        views |= {f"{prefix}{name}.bias": part for name, part in zip(names, biases, strict=True)}
    return views
