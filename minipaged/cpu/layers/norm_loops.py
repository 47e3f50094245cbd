"""A norm as work that several threads share.

Importing this module imports numba.
"""

from __future__ import annotations

import ctypes

import numpy as np

from minipaged.cpu.compiler.compiled import compiled, shared_work
from minipaged.cpu.compiler.instructions import as_array, pointer_like
from minipaged.cpu.layers.norm_and_rotation import share_norm


class NormArguments(ctypes.Structure):
    """Addresses of x and result `[num_rows, size]` and of `weight` `[size]`, all in the model's dtype."""

    _fields_ = (
        ("next_part", ctypes.c_int64),
        ("x", ctypes.c_int64),
        ("num_rows", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("weight", ctypes.c_int64),
        ("result", ctypes.c_int64),
        ("eps", ctypes.c_double),
    )


@compiled()
def _norm(pointer, like):
    a = as_array(pointer, 1)[0]
    x = as_array(pointer_like(a.x, like), (a.num_rows, a.size))
    result = as_array(pointer_like(a.result, like), (a.num_rows, a.size))
    share_norm(pointer, x, as_array(pointer_like(a.weight, like), (a.size,)), np.float32(a.eps), result)


@shared_work(NormArguments)
def norm_float32(pointer):
    """The norm of a model in float32."""
    _norm(pointer, np.empty(0, np.float32))


@shared_work(NormArguments)
def norm_bfloat16(pointer):
    """The norm of a model in bfloat16."""
    _norm(pointer, np.empty(0, np.uint16))
