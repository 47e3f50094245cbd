"""Paged attention for CPUs: the decode steps of a batch together, each prompt by itself.

The same results as `attention/reference.py`, with fewer and larger operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from minipaged.attention.metadata import AttentionMetadata
from minipaged.attention.reference import gather


@dataclass(frozen=True)
class _DecodeLayout:
    """What all layers of a step share about its D sequences with one query each."""

    blocks: Tensor  # int64 [D * M]: the block tables, one after the other
    future: Tensor  # bool [D, 1, M * block_size]: True where a slot is past the sequence's end
    stale: Tensor  # int64 [N]: gathered slots past the end that may hold anything
    # [2, D * M, block_size, num_kv_heads, head_dim]: reused by every layer, since fresh memory of this
    # size costs more than filling it.
    gathered: Tensor


class CPUAttention:
    """The attention backend for CPUs; called like any other (see `AttentionFn`).

    It keeps the layout of the step it saw last, because every layer of a step asks for the same
    one. That is all the state it has; each engine has its own instance.
    """

    def __init__(self) -> None:
        self._last: tuple[AttentionMetadata, _DecodeLayout] | None = None

    def __call__(self, query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        output = torch.empty_like(query)
        num_decodes = metadata.num_decodes
        if num_decodes:
            layout = self._decode_layout(metadata, kv_layer)
            output[:num_decodes] = _decode(query[:num_decodes], kv_layer, layout, scale)
        starts = metadata.query_start_list
        for s in range(num_decodes, len(metadata.seq_lens_list)):
            rows = slice(starts[s], starts[s + 1])
            keys, values = gather(kv_layer, metadata.block_tables[s], metadata.seq_lens_list[s])
            output[rows] = _prefill(query[rows], keys, values, scale)
        return output

    def _decode_layout(self, metadata: AttentionMetadata, kv_layer: Tensor) -> _DecodeLayout:
        if self._last is None or self._last[0] is not metadata:
            self._last = (metadata, _layout_decodes(metadata, kv_layer))
        return self._last[1]


def _layout_decodes(metadata: AttentionMetadata, kv_layer: Tensor) -> _DecodeLayout:
    num_decodes, block_size = metadata.num_decodes, kv_layer.shape[2]
    longest = max(metadata.seq_lens_list[:num_decodes])
    tables = metadata.block_tables[:num_decodes, : -(-longest // block_size)].long()  # [D, M]
    slots = torch.arange(tables.shape[1] * block_size)  # [M * block_size]
    future = slots >= metadata.seq_lens[:num_decodes, None]  # [D, M * block_size]
    # Padding is the null block, which is finite; other slots past the end may hold NaN.
    stale = future & (tables != 0).repeat_interleave(block_size, dim=1)  # [D, M * block_size]
    return _DecodeLayout(
        blocks=tables.flatten(),
        future=future[:, None],
        stale=stale.flatten().nonzero().flatten(),
        gathered=kv_layer.new_empty(2, tables.numel(), *kv_layer.shape[2:]),
    )


def _decode(query: Tensor, kv_layer: Tensor, layout: _DecodeLayout, scale: float) -> Tensor:
    """One query for each sequence: `query` and the result are `[D, num_heads, head_dim]`."""
    num_decodes, num_heads, head_dim = query.shape
    num_kv_heads = kv_layer.shape[3]
    # [2, D * M, block_size, num_kv_heads, head_dim] -> [2, D * M * block_size, ...]
    gathered = torch.index_select(kv_layer, 1, layout.blocks, out=layout.gathered).flatten(1, 2)
    # A weight of zero does not cancel a NaN, so what is stale must go from the values. (The keys'
    # scores are replaced below.)
    gathered[1].index_fill_(0, layout.stale, 0.0)
    keys, values = gathered.view(2, num_decodes, -1, num_kv_heads, head_dim).unbind(0)
    # The arithmetic is in float32: scores rounded to bfloat16 are off by up to 1 %.
    # [D, num_kv_heads, group, head_dim]
    queries = query.float().view(num_decodes, num_kv_heads, -1, head_dim) * scale
    output = torch.empty_like(queries)
    # One KV head at a time: its keys are a strided view that the matrix product reads in place,
    # while all heads at once would first be copied into another order.
    for head in range(num_kv_heads):
        scores = torch.bmm(queries[:, head], keys[:, :, head].float().transpose(1, 2))  # [D, group, L]
        scores.masked_fill_(layout.future, float("-inf"))
        output[:, head] = torch.bmm(scores.softmax(dim=-1), values[:, :, head].float())
    return output.view(num_decodes, num_heads, head_dim).to(query.dtype)


def _prefill(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """The last Q tokens of one sequence: `query` and the result are `[Q, num_heads, head_dim]`,
    keys and values `[L, num_kv_heads, head_dim]`."""
    num_queries, num_heads, _ = query.shape
    seq_len, num_kv_heads, _ = keys.shape
    group = num_heads // num_kv_heads
    keys = keys.repeat_interleave(group, dim=1)  # [L, num_heads, head_dim]
    values = values.repeat_interleave(group, dim=1)  # [L, num_heads, head_dim]
    mask = None
    if seq_len > num_queries:  # a chunk on top of cached tokens
        mask = torch.ones(num_queries, seq_len, dtype=torch.bool).tril(seq_len - num_queries)  # [Q, L]
    output = F.scaled_dot_product_attention(
        query.transpose(0, 1)[None],  # [1, num_heads, Q, head_dim]
        keys.transpose(0, 1)[None],
        values.transpose(0, 1)[None],
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
    )
    return output[0].transpose(0, 1)
