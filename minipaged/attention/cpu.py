"""Paged attention for CPUs, in compiled loops that read keys and values through the block table.

The same results as `attention/reference.py`, several times as fast.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minipaged.attention.metadata import AttentionMetadata
from minipaged.attention.reference import reference_attention
from minipaged.cpu.panel import PANEL
from minipaged.cpu.threads import run_on_threads, threads_for

ATTENDING = 1.5e-3
"""About how many microseconds it takes to read one number of the keys, one of the values, and to use both."""


def cpu_attention(query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
    """The attention backend for CPUs; called like any other (see `AttentionFn`).

    Raises:
        IndexError: a block table is too short, or holds a block that the cache does not have; or the
            metadata is of another step.
    """
    if not _can_read(query, kv_layer) or metadata.block_tables.dtype != torch.int32:
        return reference_attention(query, kv_layer, metadata, scale)
    # Here, so that nobody waits for numba who does not attend on a CPU.
    from minipaged.attention.cpu_work import AttentionArguments, attend_bfloat16, attend_float32

    num_tokens, num_heads, head_dim = query.shape
    _, num_blocks, block_size, num_kv_heads, _ = kv_layer.shape
    block_tables, starts = metadata.block_tables.contiguous(), metadata.query_start_list
    num_sequences = len(metadata.seq_lens_list)
    if len(block_tables) < num_sequences or len(starts) != num_sequences + 1 or starts[-1] != num_tokens:
        raise IndexError(
            f"{len(block_tables)} block tables, {num_sequences} lengths and {num_tokens} queries "
            f"for {len(starts) - 1} sequences with {starts[-1]} tokens"
        )
    groups = metadata.query_groups
    num_groups = len(groups.shared)
    num_threads = threads_for(ATTENDING * groups.num_pairs * num_kv_heads * head_dim)
    # The arithmetic is in float32: scores rounded to bfloat16 are off by up to 1 %.
    rows = _rows_of_heads(query if query.dtype == torch.float32 else query.float())
    output = torch.empty(num_tokens, num_heads, head_dim, dtype=torch.float32, device=query.device)
    keys = kv_layer.data_ptr()  # the values follow
    arguments = AttentionArguments(
        next_part=0,
        wrong_block=0,
        num_tokens=num_tokens,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        # A token's heads lie side by side: one thread should read them all, if the others have enough to do.
        heads_at_once=num_kv_heads if num_threads == 1 or num_groups >= 2 * num_threads else 1,
        head_dim=head_dim,
        query=rows.data_ptr(),
        query_stride=rows.stride(0) // head_dim,
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
        num_groups=num_groups,
        members=groups.members.data_ptr(),
        starts=groups.starts.data_ptr(),
        shared=groups.shared.data_ptr(),
        output=output.data_ptr(),
    )
    work = attend_float32 if kv_layer.dtype == torch.float32 else attend_bfloat16
    run_on_threads(work, arguments, num_threads)
    if arguments.wrong_block:
        raise IndexError(f"a block table holds a block that is not one of the {num_blocks}, or too few")
    return output if query.dtype == torch.float32 else output.to(query.dtype)


def _can_read(query: Tensor, kv_layer: Tensor) -> bool:
    """Whether the loops are made for such a cache."""
    num_kv_heads, head_dim = kv_layer.shape[3:]
    fits = head_dim % PANEL == 0 and query.shape[2] == head_dim and query.shape[1] % num_kv_heads == 0
    return fits and kv_layer.dtype in (torch.float32, torch.bfloat16) and kv_layer.is_contiguous()


def _rows_of_heads(query: Tensor) -> Tensor:
    """`query` as the loops read it: each token's heads contiguous, and whole heads between tokens."""
    head_dim = query.shape[2]
    fits = query.stride(2) == 1 and query.stride(1) == head_dim and query.stride(0) % head_dim == 0
    return query if fits and query.stride(0) > 0 else query.contiguous()
