"""The norm and the rotation as single loops over float32 numbers, compiled by numba.

PyTorch makes five passes over the hidden states for a norm and eight for a rotation, and each pass has
the overhead of a call: about as much as its work, when a step has few tokens.

Importing this module imports numba.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minipaged.compiled import FAST_SUMS, compiled

Floats = NDArray[np.float32]


@compiled(fastmath=FAST_SUMS)
def norm_rows(x: Floats, weight: Floats, eps: np.float32, result: Floats) -> None:
    """Fill `result` with the rows of x, each scaled to a root mean square of 1, times `weight`.

    Args:
        x: `[R, size]`.
        weight: `[size]`.
        eps: added to the mean square.
        result: `[R, size]`, written.
    """
    size = np.float32(x.shape[1])
    for row in range(len(x)):
        total = np.float32(0)
        for i in range(x.shape[1]):
            total += x[row, i] * x[row, i]
        scale = np.float32(1) / np.sqrt(total / size + eps)
        for i in range(x.shape[1]):
            result[row, i] = weight[i] * (x[row, i] * scale)


@compiled(fastmath=FAST_SUMS)
def rotate_in_place(heads: Floats, count: int, cos: Floats, sin: Floats) -> None:
    """Turn each pair of the first `count` heads of each token; the others stay as they are.

    Args:
        heads: `[T, H, D]`, written.
        count: at most H.
        cos, sin: `[T, D / 2]`.
    """
    half = cos.shape[1]
    for token in range(len(heads)):
        for head in range(count):
            pairs = heads[token, head]
            for i in range(half):
                first, second = pairs[i], pairs[i + half]
                pairs[i] = first * cos[token, i] - second * sin[token, i]
                pairs[i + half] = second * cos[token, i] + first * sin[token, i]
