"""The decoder's small operations, norm and rotation, each as one loop that numba compiles.

PyTorch makes five passes over the hidden states for a norm and eight for a rotation. Each pass has the
overhead of a call. In a step of few tokens this overhead takes about as long as the work itself.

A function whose name begins with `share_` is called by several threads at once. Each thread does some parts
of the work. Importing this module imports numba.
"""

from __future__ import annotations

import numpy as np

from minipaged.cpu.arithmetic.numbers import kept, number
from minipaged.cpu.compiler.compiled import FAST_SUMS, compiled
from minipaged.cpu.compiler.instructions import take_part


@compiled(fastmath=FAST_SUMS)
def norm_row(x, weight, eps, result):
    """Fill `result` with x, scaled to a root mean square of 1, times `weight`. All three are `[size]`."""
    total = np.float32(0)
    for i in range(len(x)):
        total += number(x[i]) * number(x[i])
    scale = np.float32(1) / np.sqrt(total / np.float32(len(x)) + eps)
    for i in range(len(x)):
        normed = number(kept(number(x[i]) * scale, weight))
        result[i] = kept(number(kept(number(weight[i]) * normed, weight)), result)


@compiled(fastmath=FAST_SUMS)
def rotate_head(head, cos, sin):
    """Rotate each pair of a head `[D]` in place; cos and sin are `[D / 2]`."""
    half = len(cos)
    for i in range(half):
        first, second = number(head[i]), number(head[i + half])
        c, s = number(cos[i]), number(sin[i])
        head[i] = kept(number(kept(first * c, head)) - number(kept(second * s, head)), head)
        head[i + half] = kept(number(kept(second * c, head)) + number(kept(first * s, head)), head)


@compiled()
def share_norm(counter, x, weight, eps, result):
    """Write `norm_row` of each row of x `[T, size]` to `result`. A part of the work is a row."""
    while True:
        row = take_part(counter)
        if row >= len(x):
            break
        norm_row(x[row], weight, eps, result[row])


@compiled()
def share_conversion(counter, x, result):
    """Write the numbers of x `[T, size]` to `result` as float32. A part of the work is a row."""
    while True:
        row = take_part(counter)
        if row >= len(x):
            break
        for i in range(x.shape[1]):
            result[row, i] = number(x[row, i])


@compiled()
def share_rotation(counter, heads, num_queries, num_keys, q_norm, k_norm, eps, cos, sin):
    """Normalise (if there is a norm) and rotate queries and keys in place. A part of the work is a token.

    Args:
        counter: gives each thread the numbers of its parts.
        heads: `[T, H, D]`: queries, then keys, then the values, which are not changed.
        num_queries, num_keys: numbers of query heads and key heads.
        q_norm, k_norm: `[D]`, or empty.
        eps: the epsilon of the norms.
        cos, sin: `[T, D / 2]`.
    """
    while True:
        token = take_part(counter)
        if token >= len(heads):
            break
        for h in range(num_queries + num_keys):
            head = heads[token, h]
            weight = q_norm if h < num_queries else k_norm
            if len(weight):
                norm_row(head, weight, eps, head)
            rotate_head(head, cos[token], sin[token])
