"""The two loops of decode attention on a CPU, compiled by numba: they read the blocks in place.

Written like a GPU's kernel, with a core's vector unit in the place of a warp: for each sequence, for
each of its tokens, find the block in the table and go once over the heads' numbers there. Gathering
the blocks into dense tensors first would move the same bytes three times: read, write, read again.

Importing this module imports numba, so the backend does it when it first decodes.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from minipaged.compiled import FAST_SUMS, compiled


@compiled()
def attention_scores(
    query: NDArray[np.float32],
    keys: NDArray[np.float32] | NDArray[np.uint16],
    block_tables: NDArray[np.int32],
    seq_lens: NDArray[np.int32],
    scores: NDArray[np.float32],
) -> None:
    """Fill `scores` with each query's products with the keys of its sequence; −inf past its end.

    Args:
        query: `[D, num_heads, head_dim]`, one token of each sequence, scaled.
        keys: `[num_blocks, block_size, num_kv_heads, head_dim]`; bfloat16 as its bits.
        block_tables: `[D, M]`.
        seq_lens: `[D]`.
        scores: `[D, num_heads, longest]`, written.
    """
    block_size, num_kv_heads = keys.shape[1:3]
    group = query.shape[1] // num_kv_heads
    for s in range(len(seq_lens)):
        for position in range(seq_lens[s]):
            token = keys[block_tables[s, position // block_size], position % block_size]
            for kv_head in range(num_kv_heads):
                for i in range(group):
                    head = kv_head * group + i
                    scores[s, head, position] = _dot(query[s, head], token[kv_head])
        scores[s, :, seq_lens[s] :] = -np.inf


@compiled()
def weighted_values(
    weights: NDArray[np.float32],
    values: NDArray[np.float32] | NDArray[np.uint16],
    block_tables: NDArray[np.int32],
    seq_lens: NDArray[np.int32],
    output: NDArray[np.float32],
) -> None:
    """Fill `output` with the sum of each sequence's values, weighted.

    Args:
        weights: `[D, num_heads, longest]`: the softmax of the scores.
        values: as `keys` above. Nothing past a sequence's end is read.
        block_tables: `[D, M]`.
        seq_lens: `[D]`.
        output: `[D, num_heads, head_dim]`, written.
    """
    block_size, num_kv_heads = values.shape[1:3]
    group = output.shape[1] // num_kv_heads
    value = np.empty(values.shape[3], dtype=np.float32)  # [head_dim]
    output[:] = 0
    for s in range(len(seq_lens)):
        for position in range(seq_lens[s]):
            token = values[block_tables[s, position // block_size], position % block_size]
            for kv_head in range(num_kv_heads):
                for i in range(len(value)):
                    value[i] = _widen(token[kv_head, i])
                for i in range(group):
                    head = kv_head * group + i
                    _add_scaled(output[s, head], weights[s, head, position], value)


@compiled(fastmath=FAST_SUMS)
def _dot(query, key):
    total = np.float32(0)
    for i in range(len(query)):
        total += query[i] * _widen(key[i])
    return total


@compiled(fastmath=FAST_SUMS)
def _add_scaled(output, weight, value):
    for i in range(len(output)):
        output[i] += weight * value[i]


def _widen(number: np.float32 | np.uint16) -> np.float32:
    """A stored number as float32. NumPy has no bfloat16: its 16 bits are the upper ones of a float32."""
    raise NotImplementedError("this exists in compiled code alone")


@overload(_widen, inline="always")
def _compiled_widen(number):  # numba calls it with types
    if number == types.uint16:
        return lambda number: np.uint32(np.uint32(number) << 16).view(np.float32)
    return lambda number: number
