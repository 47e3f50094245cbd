"""A step of attention for chapter 3's tests: random sequences in scattered blocks, with the right answer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

from minipaged.attention.metadata import AttentionMetadata
from minipaged.kv.block_pool import NULL_BLOCK
from minipaged.kv.size import blocks_needed


@dataclass(frozen=True)
class Step:
    """A step of S sequences and T query tokens.

    Attributes:
        query: `[T, num_heads, head_dim]`.
        kv_layer: `[2, num_blocks, block_size, num_kv_heads, head_dim]`. The null block is all 0. Every other
            slot that holds no token of the step is NaN.
        metadata: the step's layout.
        scale: multiplies the scores.
        keys, values: `[seq_len, num_kv_heads, head_dim]` for each sequence, in order.
        tables: each sequence's block table, without padding.
    """

    query: Tensor
    kv_layer: Tensor
    metadata: AttentionMetadata
    scale: float
    keys: list[Tensor]
    values: list[Tensor]
    tables: list[list[int]]

    def expected(self) -> Tensor:
        """The right answer, `[T, num_heads, head_dim]`, by PyTorch's own attention, without blocks."""
        outputs = []
        starts = self.metadata.query_start_list
        for s, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            query = self.query[starts[s] : starts[s + 1]].transpose(0, 1)  # [num_heads, Q, head_dim]
            num_queries, seq_len = query.shape[1], keys.shape[0]
            mask = torch.ones(num_queries, seq_len, dtype=torch.bool).tril(seq_len - num_queries)  # [Q, L]
            outputs.append(
                F.scaled_dot_product_attention(
                    query,
                    keys.transpose(0, 1),
                    values.transpose(0, 1),
                    attn_mask=mask,
                    scale=self.scale,
                    enable_gqa=True,
                ).transpose(0, 1)
            )
        return torch.cat(outputs)


def make_step(
    seq_lens: Sequence[int],
    query_lens: Sequence[int],
    *,
    block_size: int = 4,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 8,
    num_spare_blocks: int = 3,
    seed: int = 0,
) -> Step:
    """Make a step that computes the last `query_lens[s]` of the `seq_lens[s]` tokens of each sequence s.

    Blocks are allocated in random order, so that no sequence is contiguous.
    """
    torch_random = torch.Generator().manual_seed(seed)
    counts = [blocks_needed(seq_len, block_size) for seq_len in seq_lens]
    num_blocks = 1 + sum(counts) + num_spare_blocks
    shuffled = list(range(1, num_blocks))
    random.Random(seed).shuffle(shuffled)
    kv_layer = torch.full((2, num_blocks, block_size, num_kv_heads, head_dim), float("nan"))
    kv_layer[:, NULL_BLOCK] = 0
    slots_view = kv_layer.flatten(1, 2)  # [2, num_slots, num_kv_heads, head_dim]
    keys, values, tables, slot_mapping = [], [], [], []
    for seq_len, query_len, count in zip(seq_lens, query_lens, counts, strict=True):
        table, shuffled = shuffled[:count], shuffled[count:]
        slots = [table[p // block_size] * block_size + p % block_size for p in range(seq_len)]
        both = torch.randn(2, seq_len, num_kv_heads, head_dim, generator=torch_random)
        slots_view[:, slots] = both
        keys.append(both[0])
        values.append(both[1])
        tables.append(table)
        slot_mapping += slots[seq_len - query_len :]
    longest = max(counts)
    padded = [table + [NULL_BLOCK] * (longest - len(table)) for table in tables]
    starts = tuple(accumulate(query_lens, initial=0))
    metadata = AttentionMetadata(
        query_start_loc=torch.tensor(starts, dtype=torch.int32),
        seq_lens=torch.tensor(seq_lens, dtype=torch.int32),
        block_tables=torch.tensor(padded, dtype=torch.int32),
        slot_mapping=torch.tensor(slot_mapping),
        query_start_list=starts,
        seq_lens_list=tuple(seq_lens),
        num_decodes=sum(query_len == 1 for query_len in query_lens),
    )
    query = torch.randn(starts[-1], num_heads, head_dim, generator=torch_random)
    return Step(query, kv_layer, metadata, head_dim**-0.5, keys, values, tables)


def shape_of(tensor: object) -> tuple[int, ...]:
    """The shape of a tensor; empty for anything that is not a tensor."""
    return tuple(tensor.shape) if isinstance(tensor, Tensor) else ()
