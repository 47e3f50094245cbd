"""Paged attention in plain PyTorch. It is written for reading, and every fast version is tested against it.

It handles one sequence at a time. It gathers the sequence's keys and values through the block table into
contiguous tensors, and then computes softmax attention as in any textbook. A decode step, a prompt, and a
chunk of a prompt after cached tokens are the same computation: each of the last `num_queries` tokens of a
sequence attends to all tokens up to itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minipaged.attention.metadata import AttentionMetadata


def gather(kv_layer: Tensor, block_table: Tensor, seq_len: int) -> tuple[Tensor, Tensor]:
    """Collect one sequence's keys and values from its blocks.

    Args:
        kv_layer: `[2, num_blocks, block_size, num_kv_heads, head_dim]`.
        block_table: int32 `[M]`. Its blocks hold at least `seq_len` tokens.
        seq_len: how many tokens to collect. Later slots of the last block are left out.

    Returns:
        Keys and values, each `[seq_len, num_kv_heads, head_dim]`.
    """
    block_size = kv_layer.shape[2]
    blocks = block_table[: -(-seq_len // block_size)].long()  # [ceil(seq_len / block_size)]
    keys, values = kv_layer[:, blocks].flatten(1, 2)[:, :seq_len].unbind(0)
    return keys, values


def reference_attention(query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
    """Attention through the block table, computed in float32. The shapes are those of `AttentionFn`."""
    output = torch.empty_like(query)
    starts = metadata.query_start_list
    for s, seq_len in enumerate(metadata.seq_lens_list):
        rows = slice(starts[s], starts[s + 1])
        if rows.start == rows.stop:
            continue
        keys, values = gather(kv_layer, metadata.block_tables[s], seq_len)
        output[rows] = attend_one(query[rows], keys, values, scale)
    return output


def attend_one(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Causal attention from the last Q tokens of one sequence to all of its L tokens.

    Args:
        query: `[Q, num_heads, head_dim]`, for the last Q tokens.
        keys: `[L, num_kv_heads, head_dim]`.
        values: `[L, num_kv_heads, head_dim]`.
        scale: the factor for the attention scores.

    Returns:
        `[Q, num_heads, head_dim]`.
    """
    num_queries, num_heads, _ = query.shape
    seq_len, num_kv_heads, _ = keys.shape
    # GQA: query heads h * group to h * group + group - 1 read KV head h.
    group = num_heads // num_kv_heads
    keys = keys.repeat_interleave(group, dim=1)  # [L, num_heads, head_dim]
    values = values.repeat_interleave(group, dim=1)  # [L, num_heads, head_dim]

    scores = torch.einsum("qhd,khd->hqk", query.float(), keys.float()) * scale  # [num_heads, Q, L]
    positions = torch.arange(seq_len, device=query.device)  # [L]
    own = positions[seq_len - num_queries :]  # [Q]
    future = positions[None, :] > own[:, None]  # [Q, L]
    scores = scores.masked_fill(future, float("-inf"))
    weights = scores.softmax(dim=-1)  # [num_heads, Q, L]
    return torch.einsum("hqk,khd->qhd", weights, values.float()).to(query.dtype)
