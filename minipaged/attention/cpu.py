"""Paged attention for CPUs: decodes read the blocks in place, each prompt is gathered by itself.

The same results as `attention/reference.py`, several times as fast.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from minipaged.attention.metadata import AttentionMetadata
from minipaged.attention.reference import gather, reference_attention

WORTH_A_THREAD = 2_000_000
"""Numbers of keys that one thread should have to read: about a millisecond's work. With less, waking
another one costs more than it saves."""


class CPUAttention:
    """The attention backend for CPUs; called like any other (see `AttentionFn`).

    It keeps threads for the decodes of large batches, as many as torch has; each engine has its own.
    """

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    def __call__(self, query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        if kv_layer.dtype == torch.float16:  # which numba cannot read
            return reference_attention(query, kv_layer, metadata, scale)
        output = torch.empty_like(query)
        num_decodes = metadata.num_decodes
        if num_decodes:
            output[:num_decodes] = self._decode(query[:num_decodes], kv_layer, metadata, scale)
        starts = metadata.query_start_list
        for s in range(num_decodes, len(metadata.seq_lens_list)):
            rows = slice(starts[s], starts[s + 1])
            keys, values = gather(kv_layer, metadata.block_tables[s], metadata.seq_lens_list[s])
            output[rows] = _prefill(query[rows], keys, values, scale)
        return output

    def _decode(self, query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        """One query for each sequence: `query` and the result are `[D, num_heads, head_dim]`."""
        from minipaged.attention.cpu_kernels import attention_scores, weighted_values

        lens = metadata.seq_lens_list[: len(query)]
        keys, values = (_as_numpy(each) for each in kv_layer)  # [num_blocks, block_size, Hkv, head_dim]
        # The arithmetic is in float32: scores rounded to bfloat16 are off by up to 1 %.
        queries = (query.float() * scale).numpy()
        tables, seq_lens = metadata.block_tables.numpy(), metadata.seq_lens.numpy()
        scores = torch.empty(*query.shape[:2], max(lens))  # [D, num_heads, longest]
        output = torch.empty(query.shape)  # [D, num_heads, head_dim]

        def decode(part: slice) -> None:
            attention_scores(queries[part], keys, tables[part], seq_lens[part], scores[part].numpy())
            weights = torch.softmax(scores[part], dim=-1)
            weighted_values(weights.numpy(), values, tables[part], seq_lens[part], output[part].numpy())

        num_numbers = sum(lens) * keys.shape[2] * keys.shape[3]
        num_parts = min(torch.get_num_threads(), 1 + num_numbers // WORTH_A_THREAD)
        if num_parts == 1:
            decode(slice(len(lens)))
        else:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(torch.get_num_threads(), "attention")
            list(self._threads.map(decode, _equal_parts(lens, num_parts)))
        return output.to(query.dtype)


def _as_numpy(tensor: Tensor) -> NDArray[np.float32] | NDArray[np.uint16]:
    """The same memory as NumPy sees it, which has no bfloat16."""
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _equal_parts(lens: Sequence[int], num_parts: int) -> list[slice]:
    """Neighbouring sequences with about as many tokens in each part; no part is empty."""
    ends = np.cumsum(lens)
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, num_parts) / num_parts, side="left") + 1
    bounds = sorted({0, *cuts.tolist(), len(lens)})
    return [slice(*pair) for pair in itertools.pairwise(bounds)]


def _prefill(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """The last Q tokens of one sequence: `query` and the result are `[Q, num_heads, head_dim]`,
    keys and values `[L, num_kv_heads, head_dim]`."""
    num_queries, num_heads, _ = query.shape
    seq_len, num_kv_heads, _ = keys.shape
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
        enable_gqa=num_kv_heads < num_heads,
    )
    return output[0].transpose(0, 1)
