"""AttentionCase: an artificial input for one attention step, of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from minipaged.attention.metadata import AttentionMetadata


@dataclass(frozen=True)
class Shape:
    """The heads of a model."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    def __str__(self) -> str:
        return f"({self.num_heads}, {self.num_kv_heads}, {self.head_dim})"


@dataclass(frozen=True)
class Span:
    """One sequence of `seq_len` tokens. The step computes its last `num_queries` tokens."""

    num_queries: int
    seq_len: int


@dataclass(frozen=True)
class AttentionCase:
    """The arguments of one call of an attention backend (see `AttentionFn`)."""

    query: Tensor  # [T, num_heads, head_dim]
    kv_layer: Tensor  # [2, num_blocks, block_size, num_kv_heads, head_dim]
    metadata: AttentionMetadata
    scale: float

    @property
    def kv_bytes(self) -> int:
        """Bytes of the keys and values that a decode has to read."""
        numbers = 2 * sum(self.metadata.seq_lens_list) * self.kv_layer[0, 0, 0].numel()
        return numbers * self.kv_layer.itemsize

    @property
    def flops(self) -> int:
        """Multiplications and additions in the two products, over all pairs of a query and a visible key."""
        starts = self.metadata.query_start_list
        pairs = 0
        for s, seq_len in enumerate(self.metadata.seq_lens_list):
            num_queries = starts[s + 1] - starts[s]
            pairs += num_queries * (2 * seq_len - num_queries + 1) // 2
        return 4 * pairs * self.query[0].numel()

    def in_float32(self) -> AttentionCase:
        """The same case in float32. Its result counts as exact in comparisons with 16-bit dtypes."""
        return replace(self, query=self.query.float(), kv_layer=self.kv_layer.float())


def num_blocks_of(spans: Sequence[Span], block_size: int) -> int:
    """The number of blocks that the sequences take, including the null block."""
    return 1 + sum(-(-span.seq_len // block_size) for span in spans)


def cache_numbers(spans: Sequence[Span], shape: Shape, block_size: int) -> int:
    """How many numbers a KV cache for these sequences has."""
    return 2 * num_blocks_of(spans, block_size) * block_size * shape.num_kv_heads * shape.head_dim


def make_case(
    spans: Sequence[Span],
    shape: Shape,
    block_size: int,
    memory: Tensor,
    *,
    shuffled: bool = True,
    poisoned: bool = False,
) -> AttentionCase:
    """Make a step whose KV cache lies in memory that is already filled.

    Args:
        spans: the sequences; those with one query come first.
        shape: the heads.
        block_size: tokens in a block.
        memory: at least `cache_numbers(...)` random numbers. The case has their dtype and device.
        shuffled: whether the blocks have a random order. Otherwise the blocks of a sequence follow each
            other.
        poisoned: whether to write NaN to the slots after each sequence's end.
    """
    num_blocks = num_blocks_of(spans, block_size)
    kv_shape = (2, num_blocks, block_size, shape.num_kv_heads, shape.head_dim)
    kv_layer = memory[: cache_numbers(spans, shape, block_size)].view(kv_shape)
    ids = torch.arange(1, num_blocks)  # block 0 is the null block
    if shuffled:
        ids = ids[torch.randperm(num_blocks - 1, generator=torch.Generator().manual_seed(0))]
    counts = [-(-span.seq_len // block_size) for span in spans]
    tables = torch.zeros(len(spans), max([1, *counts]), dtype=torch.int32)  # [S, M]
    for row, blocks in zip(tables, ids.split(counts), strict=True):
        row[: len(blocks)] = blocks
    if poisoned:
        for span, count, row in zip(spans, counts, tables.tolist(), strict=True):
            kv_layer[:, row[count - 1], span.seq_len - (count - 1) * block_size :] = float("nan")
    starts = [0, *accumulate(span.num_queries for span in spans)]
    device = memory.device
    query = torch.randn(starts[-1], shape.num_heads, shape.head_dim, device=device).to(memory.dtype)
    metadata = AttentionMetadata(
        query_start_loc=torch.tensor(starts, dtype=torch.int32, device=device),
        seq_lens=torch.tensor([span.seq_len for span in spans], dtype=torch.int32, device=device),
        block_tables=tables.to(device),
        slot_mapping=torch.zeros(starts[-1], dtype=torch.int64, device=device),  # nothing is written
        query_start_list=tuple(starts),
        seq_lens_list=tuple(span.seq_len for span in spans),
        num_decodes=sum(span.num_queries == 1 for span in spans),
    )
    return AttentionCase(query, kv_layer, metadata, shape.head_dim**-0.5)
