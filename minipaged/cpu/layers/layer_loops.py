"""The two halves of a layer, as work that several threads share.

One call computes all products, norms, rotations and gates of a half. Where an operation needs the results of
the one before it, the threads wait for each other at a barrier. A barrier takes about a microsecond, while a
call from Python takes ten.

Importing this module imports numba.
"""

from __future__ import annotations

import ctypes

import numpy as np

from minipaged.cpu.compiler.compiled import compiled, shared_work
from minipaged.cpu.compiler.instructions import address_in, as_array, call, pointer_like, pointer_to
from minipaged.cpu.layers.norm_and_rotation import share_conversion, share_norm, share_rotation
from minipaged.cpu.products.threaded_products import share_gated_product, share_product
from minipaged.cpu.products.tile import PANEL


def _fields(*names: str, floats: tuple[str, ...] = ()) -> tuple[tuple[str, type], ...]:
    return tuple((name, ctypes.c_float if name in floats else ctypes.c_int64) for name in names)


class BeforeArguments(ctypes.Structure):
    """Arguments of the half before attention.

    Tensors are given by their addresses. The address 0 stands for a missing tensor. The first three fields
    count the parts that threads have taken, one field for each operation. `barrier` is the address of the
    function that waits for the other threads, or 0. x is float32 `[num_tokens, hidden_size]`, and is
    overwritten.
    """

    _fields_ = _fields(
        *("next_part", "next_1", "next_2", "barrier", "num_threads"),
        *("num_tokens", "hidden_size", "num_queries", "num_kv_heads", "head_dim", "eps"),
        *("norm", "qkv", "qkv_bias", "q_norm", "k_norm", "cos", "sin", "hidden", "x", "heads"),
        floats=("eps",),
    )


class AfterArguments(ctypes.Structure):
    """Arguments of the half after attention. They are like `BeforeArguments`, but with five counters.

    `attended_size` is the size of one token's attention output. For each token, x has room for
    `attended_size` or `hidden_size` float32, whichever is larger. `gated` is float32 `[num_tokens,
    intermediate_size]`. Both x and `gated` are overwritten.
    """

    _fields_ = _fields(
        *(
            "next_part",
            "next_1",
            "next_2",
            "next_3",
            "next_4",
            "barrier",
            "num_threads",
        ),
        *("num_tokens", "hidden_size", "attended_size", "intermediate_size", "eps"),
        *("norm", "o", "o_bias", "gate_up", "down", "hidden", "attended", "x", "gated", "result"),
        floats=("eps",),
    )


@compiled()
def _counter(pointer, index):
    """One of the counters at a structure's beginning."""
    return pointer_to(address_in(pointer) + 8 * index, "int64")


@compiled()
def _wait(a):
    """Wait until all threads are here."""
    if a.barrier != 0:
        call(a.barrier)


@compiled()
def _vector(address, size, like):
    """The vector `[size]` at an address, or an empty vector if the address is 0."""
    return as_array(pointer_like(address, like), (size if address != 0 else 0,))


@compiled()
def _panels(address, num_rows, num_columns, like):
    """The weights `[num_rows, num_columns]` of a product, in panels."""
    return as_array(pointer_like(address, like), (num_rows // PANEL, num_columns, PANEL))


@compiled()
def _before(pointer, like):
    """The first half of a layer.

    `like` is an empty array in the model's dtype. It also stands in for a missing vector. The counters are
    the first fields of the arguments, in the order of the operations.
    """
    a = as_array(pointer, 1)[0]
    num_heads = a.num_queries + 2 * a.num_kv_heads
    hidden = as_array(pointer_like(a.hidden, like), (a.num_tokens, a.hidden_size))
    x = as_array(pointer_to(a.x, "float32"), (a.num_tokens, a.hidden_size))
    share_norm(_counter(pointer, 0), hidden, _vector(a.norm, a.hidden_size, like), a.eps, x)
    _wait(a)
    width = num_heads * a.head_dim
    result = as_array(pointer_like(a.heads, like), (a.num_tokens, width))
    share_product(
        _counter(pointer, 1),
        a.num_threads,
        x,
        _panels(a.qkv, width, a.hidden_size, like),
        _vector(a.qkv_bias, width, like),
        result[:0],
        result,
    )
    _wait(a)
    share_rotation(
        _counter(pointer, 2),
        as_array(pointer_like(a.heads, like), (a.num_tokens, num_heads, a.head_dim)),
        a.num_queries,
        a.num_kv_heads,
        _vector(a.q_norm, a.head_dim, like),
        _vector(a.k_norm, a.head_dim, like),
        a.eps,
        as_array(pointer_like(a.cos, like), (a.num_tokens, a.head_dim // 2)),
        as_array(pointer_like(a.sin, like), (a.num_tokens, a.head_dim // 2)),
    )


@compiled()
def _after(pointer, like):
    """The second half of a layer. Arguments as for `_before`."""
    a = as_array(pointer, 1)[0]
    hidden = as_array(pointer_like(a.hidden, like), (a.num_tokens, a.hidden_size))
    result = as_array(pointer_like(a.result, like), (a.num_tokens, a.hidden_size))
    attended = as_array(pointer_like(a.attended, like), (a.num_tokens, a.attended_size))
    is_float32 = like.itemsize == 4
    x = as_array(pointer_to(a.attended if is_float32 else a.x, "float32"), (a.num_tokens, a.attended_size))
    if not is_float32:
        share_conversion(_counter(pointer, 0), attended, x)
        _wait(a)
    share_product(
        _counter(pointer, 1),
        a.num_threads,
        x,
        _panels(a.o, a.hidden_size, a.attended_size, like),
        _vector(a.o_bias, a.hidden_size, like),
        hidden,
        result,
    )
    _wait(a)
    x = as_array(pointer_to(a.x, "float32"), (a.num_tokens, a.hidden_size))
    share_norm(_counter(pointer, 2), result, _vector(a.norm, a.hidden_size, like), a.eps, x)
    _wait(a)
    gated = as_array(pointer_to(a.gated, "float32"), (a.num_tokens, a.intermediate_size))
    share_gated_product(
        _counter(pointer, 3),
        a.num_threads,
        x,
        _panels(a.gate_up, 2 * a.intermediate_size, a.hidden_size, like),
        like,
        gated,
    )
    _wait(a)
    share_product(
        _counter(pointer, 4),
        a.num_threads,
        gated,
        _panels(a.down, a.hidden_size, a.intermediate_size, like),
        like,
        result,
        result,
    )


@shared_work(BeforeArguments)
def before_float32(pointer):
    """The first half, of a model in float32."""
    _before(pointer, np.empty(0, np.float32))


@shared_work(BeforeArguments)
def before_bfloat16(pointer):
    """The first half, of a model in bfloat16."""
    _before(pointer, np.empty(0, np.uint16))


@shared_work(AfterArguments)
def after_float32(pointer):
    """The second half, of a model in float32."""
    _after(pointer, np.empty(0, np.float32))


@shared_work(AfterArguments)
def after_bfloat16(pointer):
    """The second half, of a model in bfloat16."""
    _after(pointer, np.empty(0, np.uint16))
