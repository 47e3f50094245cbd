"""One layer of the decoder, in two halves. Attention itself runs between them, outside of the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minipaged.model.config import ModelConfig
from minipaged.model.rope import rotate


class Embedding(nn.Module):
    """A vector for each token of the vocabulary."""

    def __init__(self, num_rows: int, size: int, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = empty_parameter(num_rows, size, dtype=dtype, device=device)

    def forward(self, token_ids: Tensor) -> Tensor:
        """[T] int64 -> [T, size]."""
        return F.embedding(token_ids, self.weight)


class Linear(nn.Module):
    """y = x Wᵀ + b. All projections of the decoder use this class."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None = None) -> None:
        super().__init__()
        self.weight = weight  # [out_features, in_features]
        self.bias = bias  # [out_features]
        self.out_features = len(weight)

    @classmethod
    def empty(
        cls, in_features: int, out_features: int, *, bias: bool, dtype: torch.dtype, device: torch.device
    ) -> Linear:
        """A projection with uninitialised weights of its own."""
        return cls(
            empty_parameter(out_features, in_features, dtype=dtype, device=device),
            empty_parameter(out_features, dtype=dtype, device=device) if bias else None,
        )

    def forward(self, x: Tensor) -> Tensor:
        """[T, in_features] -> [T, out_features]."""
        return F.linear(x, self.weight, self.bias)


class RMSNorm(nn.Module):
    """Scales the last dimension to a root mean square of 1 (Zhang and Sennrich, arXiv 1910.07467).

    The mean is computed in float32. The result has the dtype of the input.
    """

    def __init__(self, size: int, eps: float, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = empty_parameter(size, dtype=dtype, device=device)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] -> [..., size]."""
        normed = F.rms_norm(x.to(torch.float32), x.shape[-1:], eps=self.eps)  # [..., size]
        return self.weight * normed.to(x.dtype)


def empty_parameter(*shape: int, dtype: torch.dtype, device: torch.device) -> nn.Parameter:
    """An uninitialised parameter of this shape, without a gradient."""
    return nn.Parameter(torch.empty(*shape, dtype=dtype, device=device), requires_grad=False)


class SelfAttention(nn.Module):
    """The projections before and after attention: hidden -> q, k, v (normed, rotated); attended -> hidden."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.num_kv_heads = config.num_kv_heads
        self.head_dim = config.head_dim
        self.q_size = config.num_heads * config.head_dim
        self.kv_size = config.num_kv_heads * config.head_dim
        # One product is faster than three: a step with few tokens spends its time on reading weights and
        # on the overhead of each call, not on arithmetic.
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

    def heads(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[T, hidden] -> q [T, Hq, D], k [T, Hkv, D], v [T, Hkv, D]; q and k are normed and rotated."""
        heads = self.qkv_proj(hidden).unflatten(-1, (-1, self.head_dim))  # [T, Hq + 2 Hkv, D]
        num_heads, num_rotated = self.num_heads, self.num_heads + self.num_kv_heads
        v = heads[:, num_rotated:]  # [T, Hkv, D]
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(heads[:, :num_heads]), self.k_norm(heads[:, num_heads:num_rotated])
            heads = torch.cat((q, k), dim=1)  # [T, Hq + Hkv, D]
        qk = rotate(heads[:, :num_rotated], cos, sin)  # [T, Hq + Hkv, D]
        return qk[:, :num_heads], qk[:, num_heads:], v

    def weight_views(self, prefix: str) -> dict[str, Tensor]:
        """Views of the weights, by Hugging Face name. The fused weight has q's rows, then k's, then v's."""
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

    def forward(self, hidden: Tensor) -> Tensor:
        """[T, hidden] -> [T, hidden]."""
        gate, up = self.gate_up_proj(hidden).chunk(2, dim=-1)  # [T, intermediate] each
        return self.down_proj(F.silu(gate).mul_(up))

    def weight_views(self, prefix: str) -> dict[str, Tensor]:
        """Views of the weights, by Hugging Face name. The fused weight has gate's rows, then up's."""
        size = self.gate_up_proj.out_features // 2
        views = _split_views(self.gate_up_proj, (size, size), prefix, ("gate_proj", "up_proj"))
        return views | _split_views(self.down_proj, (self.down_proj.out_features,), prefix, ("down_proj",))


class Layer(nn.Module):
    """Attention and MLP. The input of each is normed first, and its output is added to the unnormed input."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype, device=device)
        self.self_attn = SelfAttention(config, dtype, device)
        self.post_attention_layernorm = RMSNorm(
            config.hidden_size, config.rms_norm_eps, dtype=dtype, device=device
        )
        self.mlp = Mlp(config, dtype, device)

    def before_attention(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The queries, keys and values of a step's tokens.

        Args:
            hidden: [T, hidden].
            cos, sin: [T, 1, D / 2], of each token's angles.

        Returns:
            q [T, Hq, D], k [T, Hkv, D] and v [T, Hkv, D], as `AttendFn` takes them.
        """
        return self.self_attn.heads(self.input_layernorm(hidden), cos, sin)

    def after_attention(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """The layer's output, from its input and attention's result.

        Args:
            hidden: [T, hidden], the same as for `before_attention`.
            attended: [T, Hq, D].

        Returns:
            [T, hidden].
        """
        hidden = hidden + self.self_attn.o_proj(attended.flatten(-2))
        return hidden + self.mlp(self.post_attention_layernorm(hidden))

    def weight_views(self, prefix: str) -> dict[str, Tensor]:
        """Views of the weights, by Hugging Face name."""
        return {
            f"{prefix}input_layernorm.weight": self.input_layernorm.weight.data,
            f"{prefix}post_attention_layernorm.weight": self.post_attention_layernorm.weight.data,
            **self.self_attn.weight_views(f"{prefix}self_attn."),
            **self.mlp.weight_views(f"{prefix}mlp."),
        }


def _split_views(
    linear: Linear, sizes: tuple[int, ...], prefix: str, names: tuple[str, ...]
) -> dict[str, Tensor]:
    """For each projection in a (fused) `linear`, views of its rows, by Hugging Face name."""
    parts = linear.weight.data.split(sizes)
    views = {f"{prefix}{name}.weight": part for name, part in zip(names, parts, strict=True)}
    if linear.bias is not None:
        biases = linear.bias.data.split(sizes)
        views |= {f"{prefix}{name}.bias": part for name, part in zip(names, biases, strict=True)}
    return views
