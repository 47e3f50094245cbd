"""Random ragged steps over a cache with NaN in unused slots, and the results of textbook attention."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

from minipaged.attention.metadata import AttentionMetadata

NAN = float("nan")


@dataclass(frozen=True)
class Span:
    """One sequence of a step: the last `num_queries` of `seq_len` tokens are computed.

    `num_spare` blocks at the end of its table hold no token yet. The first `num_shared` blocks are those of
    the sequence before it.
    """

    num_queries: int
    seq_len: int
    num_spare: int = 0
    num_shared: int = 0


@dataclass(frozen=True)
class Heads:
    num_kv_heads: int
    group: int
    head_dim: int

    @property
    def num_heads(self) -> int:
        return self.num_kv_heads * self.group

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5


@dataclass(frozen=True)
class Step:
    query: Tensor  # [T, num_heads, head_dim]
    kv_layer: Tensor  # [2, num_blocks, block_size, num_kv_heads, head_dim]
    metadata: AttentionMetadata
    heads: Heads


def make_step(
    spans: Sequence[Span],
    heads: Heads,
    block_size: int,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    extra_columns: int = 0,
) -> Step:
    """A step with scattered blocks, in a cache that is NaN in every slot without a token.

    These are the slots of free blocks, of spare blocks, and after the last token in a last block. The null
    block is finite, as it must be, but not zero. `extra_columns` widens the tables.
    """
    generator, shuffle = torch.Generator().manual_seed(seed), random.Random(seed)
    spans = sorted(spans, key=lambda span: span.num_queries != 1)
    tables: list[list[int]] = []
    needed = [-(-span.seq_len // block_size) + span.num_spare for span in spans]
    free = shuffle.sample(range(1, sum(needed) + 4), sum(needed))
    for i, span in enumerate(spans):
        table: list[int] = []
        if i:
            full = min(span.seq_len, spans[i - 1].seq_len) // block_size
            table = tables[-1][: min(span.num_shared, full)]
        tables.append(table + [free.pop() for _ in range(needed[i] - len(table))])
    num_blocks = sum(needed) + 4
    kv_layer = torch.full((2, num_blocks, block_size, heads.num_kv_heads, heads.head_dim), NAN)
    kv_layer[:, 0] = torch.randn(kv_layer[:, 0].shape, generator=generator)
    slots: list[int] = []
    for span, table in zip(spans, tables, strict=True):
        for position in range(span.seq_len):
            block_id, offset = table[position // block_size], position % block_size
            if kv_layer[0, block_id, offset, 0, 0].isnan():  # else it is shared, and filled already
                token = torch.randn(2, heads.num_kv_heads, heads.head_dim, generator=generator)
                kv_layer[:, block_id, offset] = token
            if position >= span.seq_len - span.num_queries:
                slots.append(block_id * block_size + offset)
    starts = [0]
    for span in spans:
        starts.append(starts[-1] + span.num_queries)
    width = max(map(len, tables)) + extra_columns
    query = torch.randn(starts[-1], heads.num_heads, heads.head_dim, generator=generator)
    metadata = AttentionMetadata(
        query_start_loc=torch.tensor(starts, dtype=torch.int32),
        seq_lens=torch.tensor([span.seq_len for span in spans], dtype=torch.int32),
        block_tables=torch.tensor([t + [0] * (width - len(t)) for t in tables], dtype=torch.int32),
        slot_mapping=torch.tensor(slots, dtype=torch.int64),
        query_start_list=tuple(starts),
        seq_lens_list=tuple(span.seq_len for span in spans),
        num_decodes=sum(span.num_queries == 1 for span in spans),
    )
    return Step(query.to(dtype), kv_layer.to(dtype), metadata, heads)


def dense_attention(step: Step) -> Tensor:
    """PyTorch's own attention in float64, sequence by sequence, on keys picked slot by slot."""
    block_size, group = step.kv_layer.shape[2], step.heads.group
    outputs: list[Tensor] = []
    row = 0
    for s, seq_len in enumerate(step.metadata.seq_lens.tolist()):
        end = int(step.metadata.query_start_loc[s + 1])
        table = step.metadata.block_tables[s].tolist()
        cache = step.kv_layer.double()
        picked = torch.stack(
            [cache[:, table[p // block_size], p % block_size] for p in range(seq_len)], dim=1
        )
        heads = [head // group for head in range(step.heads.num_heads)]
        keys, values = picked[:, :, heads].transpose(1, 2)  # each [num_heads, L, head_dim]
        query = step.query[row:end].double().transpose(0, 1)  # [num_heads, Q, head_dim]
        first = seq_len - (end - row)
        allowed = torch.tensor([[k <= first + q for k in range(seq_len)] for q in range(end - row)])
        output = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=allowed.view(end - row, seq_len), scale=step.heads.scale
        )
        outputs.append(output.transpose(0, 1))
        row = end
    return torch.cat(outputs)


HEADS = st.builds(
    Heads,
    num_kv_heads=st.integers(1, 3),
    group=st.sampled_from([1, 3, 4, 7, 8]),
    head_dim=st.sampled_from([32, 64, 80, 96, 128]),
)
BLOCK_SIZES = st.sampled_from([1, 2, 4, 16, 32])


@st.composite
def spans(draw: st.DrawFn) -> Span:
    """A decode step, a whole prompt, or a chunk after cached tokens.

    Block sizes are small, so many lengths are near block boundaries.
    """
    seq_len = draw(st.integers(1, 40))
    kind = draw(st.sampled_from(["decode", "prompt", "chunk"]))
    num_queries = {"decode": 1, "prompt": seq_len}.get(kind) or draw(st.integers(1, seq_len))
    return Span(num_queries, seq_len, draw(st.integers(0, 2)), draw(st.integers(0, 3)))


@st.composite
def steps(draw: st.DrawFn, dtype: torch.dtype = torch.float32) -> Step:
    return make_step(
        draw(st.lists(spans(), min_size=1, max_size=5)),
        draw(HEADS),
        draw(BLOCK_SIZES),
        seed=draw(st.integers(0, 999)),
        dtype=dtype,
        extra_columns=draw(st.integers(0, 2)),
    )
