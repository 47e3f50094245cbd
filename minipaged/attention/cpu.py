"""Paged attention for CPUs: decodes read the blocks in place, each prompt is gathered by itself.

The same results as `attention/reference.py`, several times as fast.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from minipaged.attention.metadata import AttentionMetadata
from minipaged.attention.reference import gather, reference_attention
from minipaged.cpu.panel import PANEL
from minipaged.cpu.threads import run_on_threads, threads_for

ATTENDING = 1.5e-3
"""About how many microseconds it takes to read one number of the keys, one of the values, and to use both."""


def cpu_attention(query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
    """The attention backend for CPUs; called like any other (see `AttentionFn`)."""
    if not _can_read(query, kv_layer):
        return reference_attention(query, kv_layer, metadata, scale)
    num_decodes, starts = metadata.num_decodes, metadata.query_start_list
    if num_decodes == len(query):
        return _decode(query, kv_layer, metadata, scale)
    output = torch.empty_like(query)
    if num_decodes:
        output[:num_decodes] = _decode(query[:num_decodes], kv_layer, metadata, scale)
    for s in range(num_decodes, len(metadata.seq_lens_list)):
        rows = slice(starts[s], starts[s + 1])
        keys, values = gather(kv_layer, metadata.block_tables[s], metadata.seq_lens_list[s])
        output[rows] = _prefill(query[rows], keys, values, scale)
    return output


def _decode(query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
    """One query for each sequence: `query` and the result are `[D, num_heads, head_dim]`."""
    # Here, so that nobody waits for numba who does not decode on a CPU.
    from minipaged.attention.cpu_decode import DecodeArguments, decode_bfloat16, decode_float32

    num_sequences, num_heads, head_dim = query.shape
    _, num_blocks, block_size, num_kv_heads, _ = kv_layer.shape
    num_tokens, longest = metadata.decode_lens
    num_threads = threads_for(ATTENDING * num_tokens * num_kv_heads * head_dim)
    groups = metadata.prefix_groups
    num_groups = len(groups.shared)
    # A token's heads lie side by side, so one thread should read them all, if there is enough for the others.
    heads_at_once = num_kv_heads if num_threads == 1 or num_groups >= 2 * num_threads else 1
    # The arithmetic is in float32: scores rounded to bfloat16 are off by up to 1 %.
    dtype = query.dtype
    query = _rows_of_heads(query if query.dtype == torch.float32 else query.float())
    scores = torch.empty(num_sequences, num_heads, longest, dtype=torch.float32, device=query.device)
    output = torch.empty(num_sequences, num_heads, head_dim, dtype=torch.float32, device=query.device)
    block_tables, seq_lens = metadata.int32_tables
    if min(len(block_tables), len(seq_lens)) < num_sequences:
        given = f"{len(block_tables)} block tables and {len(seq_lens)} lengths"
        raise IndexError(f"{given} for {num_sequences} sequences that decode")
    keys = kv_layer.data_ptr()  # the values follow
    arguments = DecodeArguments(
        next_part=0,
        wrong_block=0,
        num_sequences=num_sequences,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        heads_at_once=heads_at_once,
        head_dim=head_dim,
        query=query.data_ptr(),
        query_stride=query.stride(0) // head_dim,
        scale=scale,
        keys=keys,
        values=keys + kv_layer.nbytes // 2,
        num_blocks=num_blocks,
        block_size=block_size,
        block_tables=block_tables.data_ptr(),
        table_length=block_tables.shape[1],
        seq_lens=seq_lens.data_ptr(),
        num_groups=num_groups,
        members=groups.members.data_ptr(),
        starts=groups.starts.data_ptr(),
        shared=groups.shared.data_ptr(),
        scores=scores.data_ptr(),
        longest=longest,
        output=output.data_ptr(),
    )
    work = decode_float32 if kv_layer.dtype == torch.float32 else decode_bfloat16
    run_on_threads(work, arguments, num_threads)
    if arguments.wrong_block:
        raise IndexError(f"a block table holds a block that is not one of the {num_blocks}, or too few")
    return output if dtype == torch.float32 else output.to(dtype)


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
