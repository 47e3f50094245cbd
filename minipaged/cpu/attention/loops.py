"""The loops of attention on a CPU, compiled by numba: keys and values are read through the block table.

They are written like a GPU kernel, with a CPU core in place of a thread block. A group of queries reads its
sequence chunk by chunk. It keeps a running maximum and a running sum instead of a row of all scores (Milakov
and Gimelshein, arXiv 1805.02867). FlashAttention (arXiv 2205.14135) works in the same order. Decodes, prompts
and chunks of prompts take the same path.

Chunks begin at multiples of `CHUNK`, so a token's result does not depend on the other tokens of its group,
not even in its last bit.

Importing this module imports numba.
"""

from __future__ import annotations

import numpy as np

from minipaged.cpu.arithmetic.dots import MOST_VECTORS, multiply_rows
from minipaged.cpu.arithmetic.exponential import exponential
from minipaged.cpu.arithmetic.numbers import kept, number
from minipaged.cpu.attention.softmax_row import ROW, largest, weigh
from minipaged.cpu.compiler.compiled import compiled
from minipaged.cpu.compiler.instructions import address_of, as_array, pointer_to
from minipaged.cpu.products.tile import PANEL, TILE_ROWS, multiply_scattered

CHUNK = ROW
"""Tokens in a chunk. At a head dimension of 64, a chunk has 16 KB of keys and 16 KB of values."""


@compiled()
def workspace_for(num_rows, head_dim, buffer):
    """The memory that a thread needs for up to `num_rows` rows. A row is one head of one query.

    Args:
        num_rows: the number of rows of the largest group.
        head_dim: numbers in a head.
        buffer: float32 `[workspace_size(num_rows, head_dim)]`. It has to outlive the returned arrays. They
            are made from addresses, so numba does not count them as references to the buffer. Counting would
            take time.

    Returns:
        queries `[num_rows, head_dim]`, weights `[num_rows, CHUNK]`, sums `[num_rows, head_dim]`, most
        `[num_rows]` (the running maxima) and totals `[num_rows]`, all float32. The last array is int64 `[2,
        CHUNK]`, the addresses of the tokens of this chunk and of the next.
    """
    at = address_of(buffer)
    addresses = as_array(pointer_to(at, "int64"), (2, CHUNK))
    at += 16 * CHUNK
    queries = as_array(pointer_to(at, "float32"), (num_rows, head_dim))
    at += 4 * num_rows * head_dim
    sums = as_array(pointer_to(at, "float32"), (num_rows, head_dim))
    at += 4 * num_rows * head_dim
    weights = as_array(pointer_to(at, "float32"), (num_rows, CHUNK))
    at += 4 * num_rows * CHUNK
    most = as_array(pointer_to(at, "float32"), (num_rows,))
    totals = as_array(pointer_to(at + 4 * num_rows, "float32"), (num_rows,))
    return queries, weights, sums, most, totals, addresses


@compiled()
def workspace_size(num_rows, head_dim):
    """The size of the buffer for `workspace_for`, in float32 numbers."""
    return 4 * CHUNK + num_rows * (2 * head_dim + CHUNK + 2)


@compiled()
def attend_group(
    query,
    keys,
    values,
    block_tables,
    sequences,
    lengths,
    members,
    num_shared,
    kv_head,
    scale,
    workspace,
    output,
):
    """Attention of a group of tokens, for the query heads that share a KV head.

    Args:
        query: `[T, num_heads or more, head_dim]`, float32 or the bits of bfloat16. head_dim is a multiple of
            `PANEL`. All arithmetic is in float32, since scores rounded to bfloat16 would be off by up to 1 %.
        keys: `[num_blocks, block_size, num_kv_heads, head_dim]`, of the query's dtype.
        values: as `keys`. Keys and values past a token's length are not used.
        block_tables: int32 `[S, M]`.
        sequences: int32 `[T]`, each token's sequence.
        lengths: int32 `[T]`, how many tokens of its sequence each token attends to, at least 1.
        members: int32 `[N]`, the tokens of the group.
        num_shared: how many leading blocks are the same in the block tables of all the members' sequences.
        kv_head: the KV head.
        scale: multiplies the scores; above 0.
        workspace: see `workspace_for`.
        output: `[T, num_heads, head_dim]` of the query's dtype. It is overwritten for these tokens and heads.
    """
    queries, _, sums, most, totals, addresses = workspace
    block_size, num_kv_heads, head_dim = keys.shape[1:]
    num_heads = output.shape[1] // num_kv_heads
    first_head = kv_head * num_heads
    num_rows = len(members) * num_heads
    shortest = longest = lengths[members[0]]
    for i in range(len(members)):
        token = members[i]
        shortest, longest = min(shortest, lengths[token]), max(longest, lengths[token])
        for h in range(num_heads):
            row, head = i * num_heads + h, query[token, first_head + h]
            for d in range(head_dim):
                queries[row, d] = number(head[d]) * scale
    sums[:num_rows] = 0
    totals[:num_rows] = 0
    most[:num_rows] = -np.inf
    # If all tokens belong to one sequence, they read the whole sequence together. Tokens of different
    # sequences read together only the blocks that they share.
    one_sequence = sequences[members[0]] == sequences[members[-1]]
    together = longest if one_sequence else min(num_shared * block_size, shortest) // CHUNK * CHUNK
    first_table = block_tables[sequences[members[0]]]
    _locate(first_table, 0, longest, keys, addresses[0])
    for start in range(0, together, CHUNK):
        _fold(keys, values, first_table, kv_head, start, longest, lengths, members, 0, num_heads, workspace)
    if together < longest:
        for i in range(len(members)):
            block_table, end = block_tables[sequences[members[i]]], lengths[members[i]]
            _locate(block_table, together, end, keys, addresses[together // CHUNK % 2])
            for start in range(together, end, CHUNK):
                _fold(
                    keys,
                    values,
                    block_table,
                    kv_head,
                    start,
                    end,
                    lengths,
                    members[i : i + 1],
                    i * num_heads,
                    num_heads,
                    workspace,
                )
    for i in range(len(members)):
        for h in range(num_heads):
            row, target = i * num_heads + h, output[members[i], first_head + h]
            share = np.float32(1) / totals[row]
            for d in range(head_dim):
                target[d] = kept(sums[row, d] * share, output)


@compiled()
def _fold(keys, values, block_table, kv_head, start, end, lengths, members, first_row, num_heads, workspace):
    """Add the chunk of tokens that begins at `start` to the sums of the members' rows.

    The members' rows begin at `first_row`. The chunk ends before `end`, the largest of the members' lengths.
    The addresses of the chunk's tokens have already been filled in. This call locates the tokens of the next
    chunk and fetches them into the caches.
    """
    queries, weights, sums, most, totals, addresses = workspace
    head_dim = keys.shape[3]
    num_tokens = min(CHUNK, end - start)
    here, following = addresses[start // CHUNK % 2], addresses[(start // CHUNK + 1) % 2]
    _locate(block_table, min(start + CHUNK, end - 1), end, keys, following)
    end_row = first_row + len(members) * num_heads
    offset = address_of(keys) + kv_head * head_dim * keys.itemsize
    values_offset = address_of(values) + kv_head * head_dim * values.itemsize
    for row in range(first_row, end_row, MOST_VECTORS):
        multiply_rows(
            min(MOST_VECTORS, end_row - row),
            num_tokens,
            head_dim,
            (queries, row, 0),
            here,
            following if row == first_row else here,  # fetching once is enough
            offset,
            keys,
            (weights, row, 0),
        )
    for i in range(len(members)):
        for row in range(first_row + i * num_heads, first_row + (i + 1) * num_heads):
            num_seen = min(max(lengths[members[i]] - start, 0), num_tokens)
            _weigh(weights, row, num_seen, most, totals, sums)
    for top in range(first_row, end_row, TILE_ROWS):
        for left in range(0, head_dim, PANEL):
            multiply_scattered(
                min(TILE_ROWS, end_row - top),
                num_tokens,
                (weights, top, 0),
                here,
                following,
                values_offset + left * values.itemsize,
                values,
                (sums, top, left),
            )


@compiled()
def _locate(block_table, start, end, keys, addresses):
    """Fill `addresses` with the tokens' offsets in the cache, in bytes, from token `start` on.

    If fewer than `CHUNK` tokens are left before `end`, the last address is repeated.
    """
    block_size, num_kv_heads, head_dim = keys.shape[1:]
    token_bytes = num_kv_heads * head_dim * keys.itemsize
    num_tokens = min(CHUNK, end - start)
    entry, inside = start // block_size, start % block_size
    for i in range(num_tokens):
        if inside == block_size:
            entry, inside = entry + 1, 0
        addresses[i] = (np.int64(block_table[entry]) * block_size + inside) * token_bytes
        inside += 1
    for i in range(num_tokens, len(addresses)):
        addresses[i] = addresses[num_tokens - 1]


@compiled()
def _weigh(weights, row, num_seen, most, totals, sums):
    """Turn a row's scores of a chunk into weights, in place, and rescale the sums to the new maximum.

    Tokens that the row does not attend to get the weight 0.
    """
    for i in range(num_seen, CHUNK):
        weights[row, i] = -np.inf
    scores = (weights, row, 0)
    highest = max(most[row], largest(scores))
    factor = exponential(most[row] - highest)
    totals[row] = totals[row] * factor + weigh(scores, highest)
    most[row] = highest
    if factor != 1:
        for d in range(sums.shape[1]):
            sums[row, d] *= factor
