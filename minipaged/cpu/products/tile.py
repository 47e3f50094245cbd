"""The innermost loops of a matrix product, with all sums in registers: `multiply_tile`, `multiply_wide_tile`.

A product spends its time here, so the use of registers matters. A tile of the result has R rows and P
columns. For such a tile, one step of the loop reads P weights and R numbers of x, and does R × P
multiplications. If the sums were in an array, each step would read them from memory and write them back. So
this loop is written as LLVM code, in which vectors are values, and LLVM assigns the registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from minipaged.cpu.arithmetic.vectors import (
    HAS_AVX512,
    LANES,
    VECTOR,
    emit_cases,
    load_vector,
    matrix_of,
    multiply_add,
    phi_of,
    row_of,
    spread,
    store_vector,
    zeros,
)
from minipaged.cpu.compiler.instructions import CACHE_LINE, INT64, emit_prefetch

PANEL = 32
"""How many columns a panel has: it holds the weights of that many outputs side by side (see
`panel_linear.py`). A row of a panel is two LLVM vectors."""

TILE_ROWS = 12 if HAS_AVX512 else 3
"""The most rows of a tile. Its 2 vectors of sums for each row, and 2 vectors of weights, should fill the
registers."""

WIDE_ROWS = 6 if HAS_AVX512 else 1
"""The most rows of a wide tile, which covers two panels. It has 4 vectors of sums for each row, and 4 of
weights."""

WIDE_PAYS = HAS_AVX512
"""Whether wide tiles are faster for many rows. For 24 vector multiplications, a wide tile of 6 rows loads 10
operands, and a tile of 12 rows loads 14."""


@intrinsic
def _multiply_tile(typing_context, num_rows, depth, x, weights, result, resume, following, step):
    integer = types.int64
    signature = types.void(integer, integer, x, weights, result, types.boolean, following, integer)

    def generate(context, builder, signature, arguments):
        num_rows, depth, *_, resume, _, step = arguments
        x, weights, result, following = (
            matrix_of(context, builder, signature.args[i], arguments[i]) for i in (2, 3, 4, 6)
        )
        number_bytes = weights.number_bytes

        def rows_at(d):
            ahead = builder.add(following.address, builder.mul(d, step))
            return [row_of(builder, weights, d)], _lines_from(builder, ahead, number_bytes)

        emit_cases(
            builder,
            num_rows,
            TILE_ROWS,
            lambda count: _emit_loop(builder, count, 1, depth, x, rows_at, number_bytes, result, resume),
        )
        return context.get_dummy_value()

    return signature, generate


multiply_tile = cast(Callable[..., None], _multiply_tile)
"""result[r, p] = (result[r, p] if resume else 0) + Σ over d of x[r, d] × weights[d, p].

Every sum is taken in the order of d, so it does not depend on the number of rows. The matrices are given by
their corners (see `vectors.matrix_of`). Their bounds are not checked.

Args:
    num_rows: 1 to `TILE_ROWS`.
    depth: at least 1.
    x: float32 `[num_rows, depth]`.
    weights: `[depth, PANEL]`, float32, or the 16 bits of bfloat16.
    result: float32 `[num_rows, PANEL]`.
    resume: whether `result` already holds sums to add to.
    following: the weights that are multiplied next, in the same form as `weights`. They are fetched into the
        caches.
    step: how many bytes of `following` are fetched for each d, at most a row of weights. It should not be
        more than necessary: if memory is asked for more than it can deliver, this loop has to wait, too.
"""


@intrinsic
def _multiply_wide_tile(
    typing_context, num_rows, depth, x, weights, others, result, resume, following, others_following, step
):
    integer = types.int64
    signature = types.void(
        *(integer, integer, x, weights, others, result, types.boolean),
        *(following, others_following, integer),
    )

    def generate(context, builder, signature, arguments):
        num_rows, depth, *_, resume, _, _, step = arguments
        x, weights, others, result, *following = (
            matrix_of(context, builder, signature.args[i], arguments[i]) for i in (2, 3, 4, 5, 7, 8)
        )

        def rows_at(d):
            steps = builder.mul(d, step)
            sources = [row_of(builder, each, d) for each in (weights, others)]
            return sources, [builder.add(each.address, steps) for each in following]

        emit_cases(
            builder,
            num_rows,
            WIDE_ROWS,
            lambda count: _emit_loop(builder, count, 2, depth, x, rows_at, 4, result, resume),
        )
        return context.get_dummy_value()

    return signature, generate


multiply_wide_tile = cast(Callable[..., None], _multiply_wide_tile)
"""Like `multiply_tile`, but for two panels. The second panel's sums are in result[r, PANEL + p].

Args:
    num_rows: 1 to `WIDE_ROWS`.
    depth, x, resume: as in `multiply_tile`.
    weights, others: the weights of the two panels, float32 `[depth, PANEL]`.
    result: float32 `[num_rows, 2 * PANEL]`.
    following, others_following: for each of the two panels, the same as `following` in `multiply_tile`. They
        may have any dtype.
    step: as in `multiply_tile`, at most a cache line.
"""


@intrinsic
def _multiply_scattered(typing_context, num_rows, depth, x, addresses, following, offset, like, result):
    integer = types.int64
    signature = types.void(integer, integer, x, addresses, following, integer, like, result)
    number_bytes = like.dtype.bitwidth // 8

    def generate(context, builder, signature, arguments):
        num_rows, depth, *_, offset, _, _ = arguments
        x, result = (matrix_of(context, builder, signature.args[i], arguments[i]) for i in (2, 7))
        pointers = [
            context.make_array(signature.args[i])(context, builder, arguments[i]).data for i in (3, 4)
        ]

        def rows_at(d):
            row, ahead = (builder.add(builder.load(builder.gep(each, [d])), offset) for each in pointers)
            return [row], _lines_from(builder, ahead, number_bytes)

        resume = ir.Constant(ir.IntType(1), 1)
        emit_cases(
            builder,
            num_rows,
            TILE_ROWS,
            lambda count: _emit_loop(builder, count, 1, depth, x, rows_at, number_bytes, result, resume),
        )
        return context.get_dummy_value()

    return signature, generate


multiply_scattered = cast(Callable[..., None], _multiply_scattered)
"""Like `multiply_tile` with `resume`, but with scattered rows of weights. Row d is at addresses[d] + offset.

Args:
    num_rows, depth, x: as in `multiply_tile`.
    addresses: int64 `[depth or more]`, in bytes.
    following: like `addresses`, of the rows that are multiplied next. They are fetched into the caches
        meanwhile.
    offset: how many bytes are added to each address.
    like: an array of the weights' dtype.
    result: float32 `[num_rows, PANEL]`, with the sums to add to.
"""


def _lines_from(builder, address, number_bytes):
    """The addresses of the cache lines of a panel's row."""
    return [builder.add(address, INT64(line)) for line in range(0, PANEL * number_bytes, CACHE_LINE)]


def _emit_loop(builder, num_rows, num_panels, depth, x, rows_at, number_bytes, result, resume):
    """Emit the loop for fixed numbers of rows and panels.

    `rows_at(d)` gives the addresses of row d of the weights, one for each panel, and the addresses of the
    cache lines to fetch meanwhile.
    """
    columns = range(0, num_panels * PANEL, LANES)
    x_rows = [row_of(builder, x, row) for row in range(num_rows)]  # addresses
    sums_at = [
        builder.add(row_of(builder, result, row), INT64(4 * column))
        for row in range(num_rows)
        for column in columns
    ]
    before = builder.block
    load, loop, after = (builder.append_basic_block(name) for name in ("load", "loop", "after"))
    builder.cbranch(resume, load, loop)

    builder.position_at_end(load)
    loaded = [load_vector(builder, address) for address in sums_at]
    builder.branch(loop)

    builder.position_at_end(loop)
    d = phi_of(builder, INT64, (INT64(0), before), (INT64(0), load))
    sums = [phi_of(builder, VECTOR, (zeros(), before), (sum_, load)) for sum_ in loaded]
    rows, lines = rows_at(d)
    vectors = [
        load_vector(builder, builder.add(row, INT64(column * number_bytes)), number_bytes)
        for row in rows
        for column in range(0, PANEL, LANES)
    ]
    for line in lines:
        emit_prefetch(builder, line)
    new_sums = []
    for x_row in x_rows:
        factor = spread(builder, builder.add(x_row, builder.mul(d, INT64(4))))
        for vector in vectors:
            new_sums.append(multiply_add(builder, factor, vector, sums[len(new_sums)]))
    next_d = builder.add(d, INT64(1))
    d.add_incoming(next_d, loop)
    for sum_, new in zip(sums, new_sums, strict=True):
        sum_.add_incoming(new, loop)
    builder.cbranch(builder.icmp_signed("<", next_d, depth), loop, after)

    builder.position_at_end(after)
    for new, address in zip(new_sums, sums_at, strict=True):
        store_vector(builder, new, address)
