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


@compiled()
def attend_to_blocks(
    query: NDArray[np.float32],
    keys: NDArray[np.float32] | NDArray[np.uint16],
    values: NDArray[np.float32] | NDArray[np.uint16],
    block_table: NDArray[np.int32],
    seq_len: int,
    kv_head: int,
    scale: np.float32,
    scores: NDArray[np.float32],
    output: NDArray[np.float32],
) -> None:
    """One token's attention to its sequence, for the query heads that share a KV head.

    Args:
        query: `[num_heads or more, head_dim]`; head_dim is a multiple of `PANEL`.
        keys: `[num_blocks, block_size, num_kv_heads, head_dim]`; bfloat16 as its bits.
        values: as `keys`. Nothing past the sequence's end is used.
        block_table: `[M]`.
        seq_len: at least 1.
        kv_head: the KV head.
        scale: multiplies the scores; above 0.
        scores: `[num_heads, seq_len or more]`, room for the weights.
        output: `[num_heads, head_dim]`, written for these heads.
    """
    block_size, num_kv_heads, head_dim = keys.shape[1:]
    group = len(output) // num_kv_heads
    first, last = kv_head * group, (kv_head + 1) * group
    for start in range(0, seq_len, block_size):
        stop = min(start + block_size, seq_len)
        block, following = _block_and_next(block_table, start, block_size, seq_len)
        for some in range(first, last, MOST_VECTORS):
            end = min(some + MOST_VECTORS, last)
            multiply_rows(
                end - some,
                stop - start,
                head_dim,
                (query, some, 0),
                (keys[block][:, kv_head], 0, 0),
                (scores, some, start),
                (keys[following][:, kv_head], 0, 0),
            )
    for head in range(first, last):
        _softmax(scores[head], seq_len, scale)
    for start in range(0, seq_len, block_size):
        stop = min(start + block_size, seq_len)
        block, following = _block_and_next(block_table, start, block_size, seq_len)
        for some in range(first, last, TILE_ROWS):
            end = min(some + TILE_ROWS, last)
            for left in range(0, head_dim, PANEL):
                multiply_tile(
                    end - some,
                    stop - start,
                    (scores, some, start),
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
