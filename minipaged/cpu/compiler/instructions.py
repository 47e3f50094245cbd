"""Instructions that compiled code has and Python lacks: pointers, atomic counters, prefetches.

These functions work in compiled code only. Each stands for one LLVM instruction, except `aligned`, which is
built from several instructions. It returns memory that begins at a cache line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from minipaged.cpu.compiler.compiled import compiled

INT64 = ir.IntType(64)
INT32 = ir.IntType(32)
BYTES = ir.PointerType(ir.IntType(8))

CACHE_LINE = 64
"""Bytes that a cache fetches at once."""

NUMBERS = {"float32": types.float32, "int32": types.int32, "int64": types.int64, "uint16": types.uint16}


@intrinsic(prefer_literal=True)
def _pointer_to(typing_context, address, dtype):
    number = types.CPointer(NUMBERS[dtype.literal_value])

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(number))

    return number(types.int64, dtype), generate


as_array = cast(Callable[[object, int | tuple[int, ...]], np.ndarray], numba.carray)  # pyright: ignore
"""(pointer, shape) -> the memory at the pointer as an array. This is `numba.carray`."""

pointer_to = cast(Callable[[int, str], object], _pointer_to)
"""(address, dtype in `NUMBERS`) -> the address as a pointer to numbers of this dtype, for `as_array`."""


@intrinsic
def _pointer_like(typing_context, address, array):
    number = types.CPointer(array.dtype)

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(number))

    return number(types.int64, array), generate


pointer_like = cast(Callable[[int, object], object], _pointer_like)
"""(address, array) -> the address as a pointer to numbers of the array's dtype."""


@intrinsic
def _address_of(typing_context, array):
    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, INT64)

    return types.int64(array), generate


address_of = cast(Callable[[object], int], _address_of)
"""The address of an array's first number, in bytes."""


@intrinsic
def _address_in(typing_context, pointer):
    def generate(context, builder, signature, arguments):
        return builder.ptrtoint(arguments[0], INT64)

    return types.int64(pointer), generate


address_in = cast(Callable[[object], int], _address_in)
"""The address that a pointer holds."""


@intrinsic
def _call(typing_context, address):
    def generate(context, builder, signature, arguments):
        function = ir.FunctionType(ir.VoidType(), [])
        builder.call(builder.inttoptr(arguments[0], ir.PointerType(function)), [])
        return context.get_dummy_value()

    return types.void(types.int64), generate


call = cast(Callable[[int], None], _call)
"""Call the function at an address. It takes no arguments and returns nothing."""


@intrinsic
def _call_with(typing_context, address, argument):
    def generate(context, builder, signature, arguments):
        function = ir.FunctionType(ir.VoidType(), [BYTES])
        builder.call(
            builder.inttoptr(arguments[0], ir.PointerType(function)),
            [builder.inttoptr(arguments[1], BYTES)],
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


call_with = cast(Callable[[int, int], None], _call_with)
"""(function, argument): call the function at the first address, with the second address as its argument."""


@intrinsic
def _take_part(typing_context, arguments):
    def generate(context, builder, signature, values):
        counter = builder.bitcast(values[0], ir.PointerType(INT64))
        return builder.atomic_rmw("add", counter, INT64(1), "monotonic")

    return types.int64(arguments), generate


take_part = cast(Callable[[object], int], _take_part)
"""(pointer to an int64 counter) -> the number of the next part, which no other thread gets. It is the value
of the counter, which is incremented atomically."""


def emit_prefetch(builder: ir.IRBuilder, address: ir.Value) -> None:
    """Emit LLVM's prefetch for a read, into all caches except the first, which is full of data in use."""
    signature = ir.FunctionType(ir.VoidType(), [BYTES, INT32, INT32, INT32])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
    builder.call(function, [builder.inttoptr(address, BYTES), INT32(0), INT32(2), INT32(1)])


@compiled()
def aligned(size: int) -> NDArray[np.float32]:
    """An uninitialised array `[size]` that begins at a cache line.

    A vector of 16 numbers is as long as a cache line of 64 bytes. A vector that crosses into the next line
    takes two loads.
    """
    buffer = np.empty(size + CACHE_LINE // 4, np.float32)
    first = -address_of(buffer) % CACHE_LINE // 4
    return buffer[first : first + size]
