"""Paged attention for CPUs, in compiled loops that read keys and values through the block table.

It computes the same as `attention/reference.py`, several times as fast.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from minipaged.attention.metadata import AttentionMetadata
from minipaged.attention.reference import reference_attention
from minipaged.cpu.attention.query_groups import QueryGroups, group_queries
from minipaged.cpu.attention.threaded_attention import AttentionArguments, attend_bfloat16, attend_float32
from minipaged.cpu.compiler.calls import Call
from minipaged.cpu.compiler.threads import threads_for
from minipaged.cpu.products.tile import PANEL

DTYPES = (torch.float32, torch.bfloat16)
"""The dtypes that keys and values may have."""

ATTENDING = 1.5e-3
"""About how many microseconds it takes to read one number of a key and one of a value, and to compute with
them."""


class CpuAttention:
    """The attention backend of one engine on a CPU. It is called like any other backend (see `AttentionFn`).

    All layers of a step are called with the same metadata, so the first layer's call groups the step's tokens
    and the later ones use these groups.

    Raises:
        IndexError: a block table is too short or holds a block that the cache does not have, or the metadata
            belongs to another step.
    """

    def __init__(self) -> None:
        self._step: tuple[AttentionMetadata, QueryGroups, int] | None = None

    def __call__(self, query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        fits = can_attend(query.shape[1], query.shape[2], query.dtype, kv_layer)
        if not fits or metadata.block_tables.dtype != torch.int32:
            return reference_attention(query, kv_layer, metadata, scale)
        num_tokens, num_heads, head_dim = query.shape
        block_tables, starts = metadata.block_tables.contiguous(), metadata.query_start_list
        num_sequences = len(metadata.seq_lens_list)
        if len(block_tables) < num_sequences or len(starts) != num_sequences + 1 or starts[-1] != num_tokens:
            raise IndexError(
                f"{len(block_tables)} block tables, {num_sequences} lengths and {num_tokens} queries "
                f"for {len(starts) - 1} sequences with {starts[-1]} tokens"
            )
        groups, num_pairs = self._groups_of(metadata)
        rows = _rows_of_heads(query)
        output = query.new_empty(num_tokens, num_heads, head_dim)
        num_threads = threads_for(ATTENDING * num_pairs * kv_layer.shape[3] * head_dim)
        call = call_attention(rows, kv_layer, block_tables, groups, scale, output, num_threads=num_threads)
        call.run()
        check_attended(call.arguments)
        return output

    def _groups_of(self, metadata: AttentionMetadata) -> tuple[QueryGroups, int]:
        """The step's tokens in groups with the same keys, and the number of (query, key) pairs."""
        if self._step is None or self._step[0] is not metadata:
            groups = group_queries(
                metadata.block_tables.numpy(),
                metadata.query_start_list,
                metadata.seq_lens_list,
                metadata.num_decodes,
            )
            self._step = metadata, groups, int(groups.lengths.sum())
        return self._step[1:]


def check_attended(arguments: ctypes.Structure) -> None:
    """Check the arguments of `call_attention` after it has run.

    Raises:
        IndexError: a block table is too short, or holds a block that the cache does not have.
    """
    if arguments.wrong_block:
        raise IndexError(
            f"a block table holds a block that is not one of the {arguments.num_blocks}, or too few"
        )


def call_attention(
    query: Tensor,
    kv_layer: Tensor,
    block_tables: Tensor,
    groups: QueryGroups,
    scale: float,
    output: Tensor,
    *,
    num_threads: int,
) -> Call:
    """One layer's attention as a call that has not run yet.

    The call skips sequences with a wrong block table, which `check_attended` then reports. The call does not
    keep its tensors alive.

    Args:
        query: `[T, num_heads, head_dim]`. Each token's heads are contiguous, and the distance between two
            tokens is a whole number of heads.
        kv_layer: contiguous, of the query's dtype.
        block_tables: int32 `[S, M]`, contiguous.
        groups: the step's tokens. A group may be empty.
        scale: multiplies the scores.
        output: a contiguous tensor with the shape and dtype of `query`. It is overwritten.
        num_threads: number of threads to use.
    """
    num_tokens, num_heads, head_dim = query.shape
    _, num_blocks, block_size, num_kv_heads, _ = kv_layer.shape
    keys = kv_layer.data_ptr()  # the values come after the keys
    arguments = AttentionArguments(
        next_part=0,
        wrong_block=0,
        num_tokens=num_tokens,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        num_threads=num_threads,
        head_dim=head_dim,
        query=query.data_ptr(),
        query_stride=query.stride(0) // head_dim,
        scale=scale,
        keys=keys,
        values=keys + kv_layer.nbytes // 2,
        num_blocks=num_blocks,
        block_size=block_size,
        num_sequences=len(block_tables),
        block_tables=block_tables.data_ptr(),
        table_length=block_tables.shape[1],
        sequences=groups.sequences.data_ptr(),
        lengths=groups.lengths.data_ptr(),
        num_groups=len(groups.shared),
        members=groups.members.data_ptr(),
        starts=groups.starts.data_ptr(),
        shared=groups.shared.data_ptr(),
        output=output.data_ptr(),
    )
    return Call(
        attend_float32 if kv_layer.dtype == torch.float32 else attend_bfloat16, arguments, num_threads
    )


def can_attend(num_heads: int, head_dim: int, dtype: torch.dtype, kv_layer: Tensor) -> bool:
    """Whether the loops can compute attention for these queries and this cache."""
    num_kv_heads, cached_dim = kv_layer.shape[3:]
    fits = head_dim % PANEL == 0 and head_dim == cached_dim and num_heads % num_kv_heads == 0
    return fits and dtype == kv_layer.dtype and dtype in DTYPES and kv_layer.is_contiguous()


def _rows_of_heads(query: Tensor) -> Tensor:
    """`query` itself if it has the layout that `call_attention` asks for, else a contiguous copy."""
    head_dim = query.shape[2]
    fits = query.stride(2) == 1 and query.stride(1) == head_dim and query.stride(0) % head_dim == 0
    return query if fits and query.stride(0) > 0 else query.contiguous()
