"""One matrix product with weights in panels (see `panel_linear.py`), as work for several threads.

Importing this module imports numba.
"""

from __future__ import annotations

import ctypes

import numpy as np

from minipaged.cpu.compiler.compiled import compiled, shared_work
from minipaged.cpu.compiler.instructions import as_array, pointer_like, pointer_to
from minipaged.cpu.products.threaded_products import share_product
from minipaged.cpu.products.tile import PANEL


class ProductArguments(ctypes.Structure):
    """Arguments: x `[T, in]`, weights `[num_panels, in, PANEL]` and result `[T, num_panels * PANEL]`."""

    _fields_ = (
        ("next_part", ctypes.c_int64),
        ("num_threads", ctypes.c_int64),
        ("x", ctypes.c_int64),
        ("x_stride", ctypes.c_int64),
        ("num_rows", ctypes.c_int64),
        ("num_columns", ctypes.c_int64),
        ("weights", ctypes.c_int64),
        ("num_panels", ctypes.c_int64),
        ("result", ctypes.c_int64),
    )


@compiled()
def _product(pointer, like):
    a = as_array(pointer, 1)[0]
    x = as_array(pointer_to(a.x, "float32"), (a.num_rows, a.x_stride))[:, : a.num_columns]
    panels = as_array(pointer_like(a.weights, like), (a.num_panels, a.num_columns, PANEL))
    result = as_array(pointer_to(a.result, "float32"), (a.num_rows, a.num_panels * PANEL))
    share_product(pointer, a.num_threads, x, panels, like, result[:0], result)


@shared_work(ProductArguments)
def product_float32(pointer):
    """The product with float32 weights."""
    _product(pointer, np.empty(0, np.float32))


@shared_work(ProductArguments)
def product_bfloat16(pointer):
    """The product with bfloat16 weights."""
    _product(pointer, np.empty(0, np.uint16))
