"""Chapter 5 in the engine: attention of prompts, of decodes, and the writes to the cache."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from minipaged.attention.metadata import AttentionFn, AttentionMetadata
from minipaged.attention.reference import gather
from minipaged.course.seams import Seam

TILE = 16
"""Tokens in a tile, when the engine runs with exercise 5.1."""


def _attention(code: ModuleType) -> AttentionFn:
    """The attention of a step: gather, then softmax over tiles, one head after the other."""

    def attention(query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        output = torch.empty_like(query)  # [T, num_heads, head_dim]
        group = query.shape[1] // kv_layer.shape[3]
        starts = metadata.query_start_list
        for s, seq_len in enumerate(metadata.seq_lens_list):
            rows = slice(starts[s], starts[s + 1])
            num_queries = starts[s + 1] - starts[s]
            keys, values = gather(kv_layer, metadata.block_tables[s], seq_len)
            seen = torch.ones(num_queries, seq_len, dtype=torch.bool).tril(seq_len - num_queries)  # [Q, L]
            for head in range(query.shape[1]):
                scores = query[rows, head] @ keys[:, head // group].T * scale  # [Q, L]
                scores = scores.masked_fill(~seen, float("-inf"))
                output[rows, head] = code.tiled_attention(scores, values[:, head // group], TILE)
        return output

    return attention


SEAMS = (
    Seam("5.1", "attention", _attention, "gathers first, then tiled_attention for each head"),
    # Exercise 5.3 replaces this part.
    Seam("5.2", "paged_decode", lambda code: code.paged_decode, "until 5.3 is written"),
    Seam("5.3", "paged_decode", lambda code: code.grouped_decode),
    Seam("5.4", "paged_decode_split", lambda code: code.split_decode, "in steps with a single sequence"),
    Seam("5.5", "write_kv", lambda code: code.write_kv),
)
