"""FusedDecoder: a decoder whose small steps are single kernels. PyTorch still computes the products."""

from __future__ import annotations

from torch import Tensor, nn

from minipaged.model.decoder import AttendFn, Decoder
from minipaged.model.layer import RMSNorm, SelfAttention
from minipaged.triton_kernels.layer_kernels import add_norm, norm, rotate_heads, silu_times


class FusedDecoder(Decoder):
    """Computes what a plain decoder computes, with a third of the kernel launches. Both share all weights.

    This module imports Triton: call `prepare_triton` first.

    Args:
        plain: a decoder for which `fused.why_not_fused` returns `None`.
    """

    def __init__(self, plain: Decoder) -> None:
        nn.Module.__init__(self)  # Decoder.__init__ would allocate weights
        self.config = plain.config
        self.embed_tokens = plain.embed_tokens
        self.layers = plain.layers
        self.norm = plain.norm
        self.rotary = plain.rotary
        self.lm_head = plain.lm_head

    def forward(self, token_ids: Tensor, positions: Tensor, attend: AttendFn) -> Tensor:
        """Like `Decoder.forward`. One kernel adds to the residual and computes the norm that follows."""
        residual, cos, sin = self.enter(token_ids, positions)  # [T, hidden], [T, 1, D / 2] twice
        # norms[i + 1] comes after layer i. It is the first norm of the next layer, or the decoder's last
        # norm.
        norms = [*(layer.input_layernorm for layer in self.layers), self.norm]
        hidden = norm(residual, norms[0].weight, norms[0].eps)  # [T, hidden]
        for i, layer in enumerate(self.layers):
            q, k, v = _heads(layer.self_attn, hidden, cos, sin)
            attended = layer.self_attn.o_proj(attend(i, q, k, v).flatten(-2))  # [T, hidden]
            hidden = _add_norm(attended, residual, layer.post_attention_layernorm)
            hidden = layer.mlp.down_proj(silu_times(layer.mlp.gate_up_proj(hidden)))  # [T, hidden]
            hidden = _add_norm(hidden, residual, norms[i + 1])
        return hidden


def _heads(
    attention: SelfAttention, hidden: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute what `SelfAttention.heads` computes."""
    norms = None
    if attention.q_norm is not None and attention.k_norm is not None:
        norms = attention.q_norm.weight, attention.k_norm.weight, attention.q_norm.eps
    qkv = attention.qkv_proj(hidden)  # [T, (Hq + 2 Hkv) * D]
    return rotate_heads(qkv, cos, sin, attention.num_heads, attention.num_kv_heads, norms)


def _add_norm(x: Tensor, residual: Tensor, norm: RMSNorm) -> Tensor:
    return add_norm(x, residual, norm.weight, norm.eps)
