"""What compiled code can say to the processor, and Python cannot: pointers, atomic counters, prefetches.

All of it exists in compiled code alone. Each stands for one of LLVM's instructions, but for `aligned`, which
is
made of them: memory that begins at a cache line.
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
"""The memory at a pointer as an array of a shape: `numba.carray`."""

pointer_to = cast(Callable[[int, str], object], _pointer_to)
"""An address as a pointer to numbers of a dtype in `NUMBERS`: what `as_array` takes."""


@intrinsic
def _pointer_like(typing_context, address, array):
    number = types.CPointer(array.dtype)

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(number))

    return number(types.int64, array), generate


pointer_like = cast(Callable[[int, object], object], _pointer_like)
"""An address as a pointer to numbers of an array's dtype."""


@intrinsic
def _address_of(typing_context, array):
    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, INT64)

    return types.int64(array), generate


address_of = cast(Callable[[object], int], _address_of)
"""Of an array's first number, in bytes."""


@intrinsic
def _address_in(typing_context, pointer):
    def generate(context, builder, signature, arguments):
        return builder.ptrtoint(arguments[0], INT64)

    return types.int64(pointer), generate


address_in = cast(Callable[[object], int], _address_in)
"""Where a pointer points."""


@intrinsic
def _call(typing_context, address):
    def generate(context, builder, signature, arguments):
        function = ir.FunctionType(ir.VoidType(), [])
        builder.call(builder.inttoptr(arguments[0], ir.PointerType(function)), [])
        return context.get_dummy_value()

    return types.void(types.int64), generate


call = cast(Callable[[int], None], _call)
"""Calls the function at an address, which takes nothing and returns nothing."""


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
"""Calls the function at the first address; its one argument is a pointer, the second. It returns nothing."""


@intrinsic
def _take_part(typing_context, arguments):
    def generate(context, builder, signature, values):
        counter = builder.bitcast(values[0], ir.PointerType(INT64))
        return builder.atomic_rmw("add", counter, INT64(1), "monotonic")

    return types.int64(arguments), generate


take_part = cast(Callable[[object], int], _take_part)
"""The next part's number, which no other thread gets: the int64 at the pointer, which is raised by one."""


def emit_prefetch(builder: ir.IRBuilder, address: ir.Value) -> None:
    """LLVM's prefetch, for a read, into all caches but the first, which is full of what is in use."""
    signature = ir.FunctionType(ir.VoidType(), [BYTES, INT32, INT32, INT32])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
    builder.call(function, [builder.inttoptr(address, BYTES), INT32(0), INT32(2), INT32(1)])


@compiled()
def aligned(size: int) -> NDArray[np.float32]:
    """`[size]`, not filled, from the beginning of a cache line on.

    A vector of 16 numbers is as long as a line of 64 bytes. One that crosses into the next line takes two
    loads.
    """
    buffer = np.empty(size + CACHE_LINE // 4, np.float32)
    first = -address_of(buffer) % CACHE_LINE // 4
    return buffer[first : first + size]
