"""The exercises of chapter 5, made from the engine's own kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from minipaged.course.ch05.rung import DEVICE
from minipaged.triton_kernels import decode, decode_split
from minipaged.triton_kernels.cache import write_kv
from minipaged.triton_kernels.gpu import Gpu

__all__ = ["write_kv"]


def paged_decode(
    query: Tensor, kv_layer: Tensor, block_tables: Tensor, seq_lens: Tensor, scale: float
) -> Tensor:
    output = torch.empty_like(query)
    decode.paged_decode(query, kv_layer, block_tables, seq_lens, output, scale, Gpu.of(DEVICE))
    return output


grouped_decode = paged_decode
"""The engine has one kernel for both: a group may have one query head."""


def split_decode(
    query: Tensor, kv_layer: Tensor, block_tables: Tensor, seq_lens: Tensor, scale: float, num_splits: int
) -> Tensor:
    output = torch.empty_like(query)
    decode_split.paged_decode_split(
        query, kv_layer, block_tables, seq_lens, output, scale, Gpu.of(DEVICE), num_splits
    )
    return output


def tiled_attention(scores: Tensor, values: Tensor, tile: int) -> Tensor:
    """Each row becomes a sequence of its own: a token's score is the first number of its key."""
    num_rows, num_tokens = scores.shape
    num_blocks = -(-num_tokens // tile)
    cache = torch.zeros(2, num_rows * num_blocks, tile, 1, values.shape[1], device=DEVICE)
    slots = cache.view(2, num_rows, num_blocks * tile, values.shape[1])
    slots[0, :, :num_tokens, 0] = scores.to(DEVICE)
    slots[1, :, :num_tokens] = values.to(DEVICE)
    query = torch.zeros(num_rows, 1, values.shape[1], device=DEVICE)
    query[:, :, 0] = 1
    tables = torch.arange(num_rows * num_blocks, dtype=torch.int32, device=DEVICE).view(num_rows, num_blocks)
    seq_lens = torch.full((num_rows,), num_tokens, dtype=torch.int32, device=DEVICE)
    return paged_decode(query, cache, tables, seq_lens, 1.0).squeeze(1).to(scores.device)


def merge(outputs: Tensor, log_sums: Tensor) -> Tensor:
    """Merging is attention over the parts, with the logarithms as scores."""
    *leading, num_splits, head_dim = outputs.shape
    pairs = zip(log_sums.reshape(-1, 1, num_splits), outputs.reshape(-1, num_splits, head_dim), strict=True)
    return torch.cat([tiled_attention(*pair, tile=16) for pair in pairs]).view(*leading, head_dim)
