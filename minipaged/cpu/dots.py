"""`multiply_rows`: dot products of a few vectors with many others, each of which is read once for all.

This is what attention does with keys: the queries that share a KV head all want their product with each of
its keys. As in `tile.py`, the sums are in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from minipaged.cpu.instructions import INT64, emit_prefetch
from minipaged.cpu.vectors import (
    FLOAT,
    HAS_AVX512,
    LANES,
    VECTOR,
    emit_cases,
    load_vector,
    matrix_of,
    multiply_add,
    phi_of,
    row_of,
    sum_of_lanes,
    zeros,
)

MOST_VECTORS = 8 if HAS_AVX512 else 4
"""Vectors of x, at most. Each has a vector of sums in registers; more query heads rarely share a KV head."""


@intrinsic
def _multiply_rows(typing_context, count, num_rows, size, x, rows, result, following):
    signature = types.void(types.int64, types.int64, types.int64, x, rows, result, following)

    def generate(context, builder, signature, arguments):
        count, num_rows, size = arguments[:3]
        x, rows, result, following = (
            matrix_of(context, builder, *each) for each in zip(signature.args[3:], arguments[3:], strict=True)
        )
        emit_cases(
            builder,
            count,
            MOST_VECTORS,
            lambda count: _emit_rows(builder, count, num_rows, size, x, rows, result, following),
        )
        return context.get_dummy_value()

    return signature, generate


multiply_rows = cast(Callable[..., None], _multiply_rows)
"""result[v, n] = Σ over d of x[v, d] × rows[n, d].

The matrices are given by their corners (see `vectors.matrix_of`); nothing checks their bounds.

Args:
    count: 1 to `MOST_VECTORS`.
    num_rows: at least 1.
    size: a multiple of `LANES`.
    x: float32 `[count, size]`.
    rows: `[num_rows, size]`, float32, or the 16 bits of bfloat16.
    result: float32 `[count, num_rows]`, written.
    following: like `rows`, those that are multiplied next: fetched into the caches meanwhile.
"""


def _emit_rows(builder, count, num_rows, size, x, rows, result, following):
    """The loop over the rows, for a number of vectors that is known here."""
    before = builder.block
    outer, inner, after, done = map(builder.append_basic_block, ("outer", "inner", "after", "done"))
    builder.branch(outer)

    builder.position_at_end(outer)
    n = phi_of(builder, INT64, (INT64(0), before))
    row, next_row = row_of(builder, rows, n), row_of(builder, following, n)
    builder.branch(inner)

    builder.position_at_end(inner)
    d = phi_of(builder, INT64, (INT64(0), outer))
    sums = [phi_of(builder, VECTOR, (zeros(), outer)) for _ in range(count)]
    offset = builder.mul(d, INT64(rows.number_bytes))
    vector = load_vector(builder, builder.add(row, offset), rows.number_bytes)
    emit_prefetch(builder, builder.add(next_row, offset))
    new_sums = []
    for i in range(count):
        of_x = load_vector(builder, builder.add(row_of(builder, x, i), builder.mul(d, INT64(4))))
        new_sums.append(multiply_add(builder, of_x, vector, sums[i]))
    next_d = builder.add(d, INT64(LANES))
    d.add_incoming(next_d, inner)
    for sum_, new in zip(sums, new_sums, strict=True):
        sum_.add_incoming(new, inner)
    builder.cbranch(builder.icmp_signed("<", next_d, size), inner, after)

    builder.position_at_end(after)
    for i, new in enumerate(new_sums):
        address = builder.add(row_of(builder, result, i), builder.mul(n, INT64(4)))
        builder.store(sum_of_lanes(builder, new), builder.inttoptr(address, ir.PointerType(FLOAT)), align=4)
    next_n = builder.add(n, INT64(1))
    n.add_incoming(next_n, after)
    builder.cbranch(builder.icmp_signed("<", next_n, num_rows), outer, done)
    builder.position_at_end(done)
