"""Rows that lie anywhere in memory, as float32 side by side: as they are, or turned into columns.

A paged cache holds a token's key wherever its block is. `multiply_tile` wants neighbours: of the values, a
token's numbers in a row; of the keys, one number of many tokens in a row, so that each lane of a vector is
another token's score. What is gathered stays in the nearest cache, and many queries go over it.

Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from minipaged.cpu.instructions import INT32, INT64
from minipaged.cpu.vectors import LANES, load_vector, matrix_of, phi_of, row_of, store_vector


def _loop(builder, count, step, body):
    """`body(i)` for i in range(0, count, step); count is at least 1."""
    before = builder.block
    loop, after = (builder.append_basic_block(name) for name in ("loop", "after"))
    builder.branch(loop)
    builder.position_at_end(loop)
    i = phi_of(builder, INT64, (INT64(0), before))
    body(i)
    following = builder.add(i, INT64(step))
    i.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
    builder.position_at_end(after)


def _load(builder, pointer, index):
    """An int64 of an array."""
    return builder.load(builder.gep(pointer, [index]))


@intrinsic
def _gather_rows(typing_context, addresses, count, offset, size, like, result):
    integer = types.int64
    signature = types.void(addresses, integer, integer, integer, like, result)
    number_bytes = like.dtype.bitwidth // 8

    def generate(context, builder, signature, arguments):
        pointer = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        _, count, offset, size = arguments[:4]
        target = matrix_of(context, builder, signature.args[5], arguments[5])

        def copy_row(i):
            source = builder.add(_load(builder, pointer, i), offset)
            row = row_of(builder, target, i)

            def copy_vector(d):
                at = builder.add(source, builder.mul(d, INT64(number_bytes)))
                vector = load_vector(builder, at, number_bytes)
                store_vector(builder, vector, builder.add(row, builder.mul(d, INT64(4))))

            _loop(builder, size, LANES, copy_vector)

        _loop(builder, count, 1, copy_row)
        return context.get_dummy_value()

    return signature, generate


gather_rows = cast(Callable[..., None], _gather_rows)
"""result[i] = the numbers at addresses[i] + offset.

Nothing checks the addresses, nor the bounds of `result`.

Args:
    addresses: int64 `[count or more]`, in bytes.
    count: at least 1.
    offset: bytes.
    size: numbers in a row, a multiple of `LANES`.
    like: an array of such numbers: float32, or the 16 bits of bfloat16.
    result: float32 `[count, size]`, as a corner (see `vectors.matrix_of`).
"""


@intrinsic
def _gather_columns(typing_context, addresses, first, offset, size, like, result):
    integer = types.int64
    signature = types.void(addresses, integer, integer, integer, like, result)
    number_bytes = like.dtype.bitwidth // 8

    def generate(context, builder, signature, arguments):
        pointer = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        _, first, offset, size = arguments[:4]
        target = matrix_of(context, builder, signature.args[5], arguments[5])
        sources = [
            builder.add(_load(builder, pointer, builder.add(first, INT64(i))), offset) for i in range(LANES)
        ]

        def copy_square(d):
            at = builder.mul(d, INT64(number_bytes))
            rows = [load_vector(builder, builder.add(source, at), number_bytes) for source in sources]
            for i, column in enumerate(_transposed(builder, rows)):
                store_vector(builder, column, row_of(builder, target, builder.add(d, INT64(i))))

        _loop(builder, size, LANES, copy_square)
        return context.get_dummy_value()

    return signature, generate


gather_columns = cast(Callable[..., None], _gather_columns)
"""result[d, i] = number d at addresses[first + i] + offset, for `LANES` addresses.

Nothing checks the addresses, nor the bounds of `result`.

Args:
    addresses: int64 `[first + LANES or more]`, in bytes.
    first: the first of them to use.
    offset: bytes.
    size: numbers in a row, a multiple of `LANES`.
    like: an array of such numbers: float32, or the 16 bits of bfloat16.
    result: float32 `[size, LANES]`, as a corner (see `vectors.matrix_of`).
"""


def _transposed(builder, rows):
    """`LANES` vectors, of which the first holds the first number of each of the given ones, and so on.

    Halves change places, then quarters within each half, and so on down to single numbers.
    """
    half = LANES // 2
    while half:
        masks = [[], []]
        for lane in range(LANES):
            masks[0].append(lane if not lane & half else LANES + lane - half)
            masks[1].append(lane + half if not lane & half else LANES + lane)
        low, high = (ir.Constant(ir.VectorType(INT32, LANES), mask) for mask in masks)
        exchanged = list(rows)
        for i in range(LANES):
            if not i & half:
                pair = rows[i], rows[i + half]
                exchanged[i] = builder.shuffle_vector(*pair, low)
                exchanged[i + half] = builder.shuffle_vector(*pair, high)
        rows, half = exchanged, half // 2
    return rows


