"""The decoder's small work as single loops over float32 numbers, compiled by numba.

PyTorch makes five passes over the hidden states for a norm, eight for a rotation and two for a gate, and
each pass has the overhead of a call: about as much as its work, when a step has few tokens.

Importing this module imports numba.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from minipaged.cpu.compiled import FAST_SUMS, compiled, shared_work
from minipaged.cpu.exponential import exponential
from minipaged.cpu.instructions import as_array, pointer_to, take_part

Floats = NDArray[np.float32]


class NormArguments(ctypes.Structure):
    """See `norm_row`; a part is one row."""

    _fields_ = (
        ("next_part", ctypes.c_int64),
        ("num_rows", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("x", ctypes.c_int64),
        ("weight", ctypes.c_int64),
        ("eps", ctypes.c_float),
        ("result", ctypes.c_int64),
    )


class RotationArguments(ctypes.Structure):
    """See `rotate_token`; a part is one token, whose first `num_rotated` heads are turned."""

    _fields_ = (
        ("next_part", ctypes.c_int64),
        ("num_tokens", ctypes.c_int64),
        ("num_heads", ctypes.c_int64),
        ("num_rotated", ctypes.c_int64),
        ("head_dim", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("cos", ctypes.c_int64),
        ("sin", ctypes.c_int64),
    )


class GateArguments(ctypes.Structure):
    """See `gate_row`; a part is one row."""

    _fields_ = (
        ("next_part", ctypes.c_int64),
        ("num_rows", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("gate_up", ctypes.c_int64),
        ("result", ctypes.c_int64),
    )


@compiled(fastmath=FAST_SUMS)
def norm_row(x: Floats, weight: Floats, eps: np.float32, result: Floats) -> None:
    """Fill `result` with x, scaled to a root mean square of 1, times `weight`; all are `[size]`."""
    total = np.float32(0)
    for i in range(len(x)):
        total += x[i] * x[i]
    scale = np.float32(1) / np.sqrt(total / np.float32(len(x)) + eps)
    for i in range(len(x)):
        result[i] = weight[i] * (x[i] * scale)


@compiled(fastmath=FAST_SUMS)
def rotate_token(heads: Floats, num_rotated: int, cos: Floats, sin: Floats) -> None:
    """Turn each pair of the first heads in place: heads are `[H, D]`, cos and sin `[D / 2]`."""
    half = len(cos)
    for head in range(num_rotated):
        pairs = heads[head]
        for i in range(half):
            first, second = pairs[i], pairs[i + half]
            pairs[i] = first * cos[i] - second * sin[i]
            pairs[i + half] = second * cos[i] + first * sin[i]


@compiled()
def gate_row(gate_up: Floats, result: Floats) -> None:
    """Fill `result` `[size]` with silu(gate) × up, of `gate_up` `[2 * size]`. silu(g) = g / (1 + e⁻ᵍ)."""
    size = len(result)
    for i in range(size):
        gate = gate_up[i]
        power = exponential(-abs(gate))
        share = np.float32(1) / (np.float32(1) + power)
        sigmoid = share if gate >= 0 else power * share
        result[i] = gate * sigmoid * gate_up[i + size]


@shared_work(NormArguments)
def norm_rows(pointer):
    """`norm_row` for x, weight and result `[num_rows, size]`."""
    a = as_array(pointer, 1)[0]
    x = as_array(pointer_to(a.x, "float32"), (a.num_rows, a.size))
    weight = as_array(pointer_to(a.weight, "float32"), (a.size,))
    result = as_array(pointer_to(a.result, "float32"), (a.num_rows, a.size))
    while True:
        row = take_part(pointer)
        if row >= a.num_rows:
            break
        norm_row(x[row], weight, a.eps, result[row])


@shared_work(RotationArguments)
def rotate_tokens(pointer):
    """`rotate_token` for heads `[num_tokens, num_heads, head_dim]`, cos, sin `[num_tokens, head_dim / 2]`."""
    a = as_array(pointer, 1)[0]
    heads = as_array(pointer_to(a.heads, "float32"), (a.num_tokens, a.num_heads, a.head_dim))
    cos = as_array(pointer_to(a.cos, "float32"), (a.num_tokens, a.head_dim // 2))
    sin = as_array(pointer_to(a.sin, "float32"), (a.num_tokens, a.head_dim // 2))
    while True:
        token = take_part(pointer)
        if token >= a.num_tokens:
            break
        rotate_token(heads[token], a.num_rotated, cos[token], sin[token])


@shared_work(GateArguments)
def gate_rows(pointer):
    """`gate_row` for gate_up `[num_rows, 2 * size]` and result `[num_rows, size]`."""
    a = as_array(pointer, 1)[0]
    gate_up = as_array(pointer_to(a.gate_up, "float32"), (a.num_rows, 2 * a.size))
    result = as_array(pointer_to(a.result, "float32"), (a.num_rows, a.size))
    while True:
        row = take_part(pointer)
        if row >= a.num_rows:
            break
        gate_row(gate_up[row], result[row])
