"""Attention of one sequence over contiguous keys and values, for the layouts without blocks.

The readable version is `attention.reference.attend_one`. `fused_attend_one` computes the same with one
PyTorch call.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from minipaged.attention.reference import attend_one
from minipaged.choices import AttentionBackend

AttendOneFn = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""(query [Q, Hq, D], keys [L, Hkv, D], values [L, Hkv, D], scale) -> [Q, Hq, D].

The queries belong to the last Q of L tokens. Each query attends to all tokens up to its own.
"""


def select_attend_one(backend: AttentionBackend) -> AttendOneFn:
    """The attention function: the readable one for `"reference"`, otherwise the fast one."""
    return attend_one if backend == "reference" else fused_attend_one


def fused_attend_one(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Attention by `scaled_dot_product_attention`. The shapes are those of `AttendOneFn`.

    Keys and values are read in place. They are not repeated for the query heads that share them.
    """
    num_queries, num_heads, head_dim = query.shape
    seq_len, num_kv_heads, _ = keys.shape
    # GQA: the query heads that share a KV head become a separate dimension.
    grouped = query.view(num_queries, num_kv_heads, -1, head_dim).permute(1, 2, 0, 3)  # [Hkv, G, Q, D]
    shape = (num_kv_heads, num_heads // num_kv_heads, seq_len, head_dim)
    mask = None
    if 1 < num_queries < seq_len:  # a chunk after cached tokens
        mask = torch.ones(num_queries, seq_len, dtype=torch.bool, device=query.device)
        mask = mask.tril(seq_len - num_queries)  # [Q, L]
    output = F.scaled_dot_product_attention(
        grouped,
        keys.transpose(0, 1)[:, None].expand(shape),  # [Hkv, G, L, D], stride 0 along G
        values.transpose(0, 1)[:, None].expand(shape),
        attn_mask=mask,
        is_causal=num_queries > 1 and mask is None,
        scale=scale,
    )  # [Hkv, G, Q, D]
    return output.permute(2, 0, 1, 3).reshape(num_queries, num_heads, head_dim)
