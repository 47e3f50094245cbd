"""The loops of decode attention on a CPU, compiled by numba: they read the blocks in place.

Written like a GPU's kernel, with a core's vector unit in the place of a warp: for each sequence, for
each of its tokens, find the block in the table and go once over the heads' numbers there. Gathering
the blocks into dense tensors first would move the same bytes three times: read, write, read again.

What the loops wait for is memory. Blocks lie anywhere, and what a processor fetches ahead by itself ends
with each, so the next block is asked for while one is computed.

Importing this module imports numba, so the backend does it when it first decodes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minipaged.cpu.compiled import FAST_SUMS, compiled
from minipaged.cpu.dots import MOST_VECTORS, multiply_rows
from minipaged.cpu.exponential import exponential
from minipaged.cpu.panel import PANEL
from minipaged.cpu.tile import TILE_ROWS, multiply_tile

Floats = NDArray[np.float32]
Cached = NDArray[np.float32] | NDArray[np.uint16]

@compiled()
def attend_to_blocks(
    query: Floats,
    keys: Cached,
    values: Cached,
    block_tables: NDArray[np.int32],
    seq_lens: NDArray[np.int32],
    members: NDArray[np.int32],
    num_shared: int,
    kv_head: int,
    scale: np.float32,
    scores: Floats,
    output: Floats,
) -> None:
    """Some tokens' attention to their sequences, for the query heads that share a KV head.

    The sequences may begin with the same blocks. Each of those is in the nearest cache while all of their
    queries go over it.

    Args:
        query: `[S, num_heads or more, head_dim]`; head_dim is a multiple of `PANEL`.
        keys: `[num_blocks, block_size, num_kv_heads, head_dim]`; bfloat16 as its bits.
        values: as `keys`. Nothing past a sequence's end is used.
        block_tables: `[S, M]`.
        seq_lens: `[S]`, at least 1 each.
        members: the sequences that are meant.
        num_shared: with how many equal blocks, all of them full, these begin.
        kv_head: the KV head.
        scale: multiplies the scores; above 0.
        scores: `[S, num_heads, L]`, room for the weights; L is at least the longest sequence.
        output: `[S, num_heads, head_dim]`, written for these sequences and heads.
    """
    block_size, num_kv_heads = keys.shape[1:3]
    group = output.shape[1] // num_kv_heads
    first, last = kv_head * group, (kv_head + 1) * group
    end_of_shared = num_shared * block_size
    for start in range(0, end_of_shared, block_size):
        for s in members:
            _score_block(
                query[s], keys, block_tables[s], seq_lens[s], start, kv_head, (first, last), scores[s]
            )
    for s in members:
        for start in range(end_of_shared, seq_lens[s], block_size):
            _score_block(
                query[s], keys, block_tables[s], seq_lens[s], start, kv_head, (first, last), scores[s]
            )
        for head in range(first, last):
            _softmax(scores[s, head], seq_lens[s], scale)
    for start in range(0, end_of_shared, block_size):
        for s in members:
            _add_block(
                scores[s], values, block_tables[s], seq_lens[s], start, kv_head, (first, last), output[s]
            )
    for s in members:
        for start in range(end_of_shared, seq_lens[s], block_size):
            _add_block(
                scores[s], values, block_tables[s], seq_lens[s], start, kv_head, (first, last), output[s]
            )


@compiled()
def _score_block(query, keys, block_table, seq_len, start, kv_head, heads, scores):
    """The scores of one sequence's query heads for the keys of the block that begins at `start`."""
    block_size, _, head_dim = keys.shape[1:]
    block, following = _block_and_next(block_table, start, block_size, seq_len)
    first, last = heads
    for some in range(first, last, MOST_VECTORS):
        multiply_rows(
            min(MOST_VECTORS, last - some),
            min(block_size, seq_len - start),
            head_dim,
            (query, some, 0),
            (keys[block][:, kv_head], 0, 0),
            (scores, some, start),
            (keys[following][:, kv_head], 0, 0),
        )


@compiled()
def _add_block(weights, values, block_table, seq_len, start, kv_head, heads, output):
    """Adds the values of the block that begins at `start`, times their weights; the first one is set."""
    block_size, num_kv_heads, head_dim = values.shape[1:]
    block, following = _block_and_next(block_table, start, block_size, seq_len)
    first, last = heads
    for some in range(first, last, TILE_ROWS):
        for left in range(0, head_dim, PANEL):
            multiply_tile(
                min(TILE_ROWS, last - some),
                min(block_size, seq_len - start),
                (weights, some, start),
                (values[block][:, kv_head], 0, left),
                (output, some, left),
                start > 0,
                (values[following][:, kv_head], 0, left),
                num_kv_heads * head_dim * values.itemsize,
            )


@compiled()
def _block_and_next(block_table, start, block_size, seq_len):
    """The block of position `start`, and the block after it in the table: the same one if it is the last."""
    return block_table[start // block_size], block_table[min(start + block_size, seq_len - 1) // block_size]


@compiled()
def _softmax(scores, length, scale):
    """Of one head's first scores, times `scale` > 0, in place."""
    most = scores[0]
    for i in range(length):
        most = max(most, scores[i])
    for i in range(length):
        scores[i] = exponential((scores[i] - most) * scale)
    total = _sum(scores, length)
    for i in range(length):
        scores[i] /= total


@compiled(fastmath=FAST_SUMS)
def _sum(numbers, length):
    total = np.float32(0)
    for i in range(length):
        total += numbers[i]
    return total
