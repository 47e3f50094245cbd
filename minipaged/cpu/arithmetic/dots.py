"""`multiply_rows`: dot products of a few vectors with many rows, where each row is read only once.

Attention uses it for queries and keys. Each query that shares a KV head is multiplied by each key of that
head, and the keys lie wherever the blocks of the paged cache are. As in `tile.py`, the sums stay in
registers. Each product has a vector of sums, and the lanes of this vector are added up at the end. For a
single product, adding up the lanes takes as long as the multiplications. So the lanes of eight products are
added up together, which keeps all lanes busy.

Importing this module imports numba.
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
    emit_loop,
    load_vector,
    matrix_of,
    multiply_add,
    phi_of,
    row_of,
    zeros,
)
from minipaged.cpu.compiler.instructions import INT32, INT64, emit_prefetch

MOST_VECTORS = 3 if HAS_AVX512 else 1
"""The most vectors of x that are multiplied at once. Each has `ROWS_TOGETHER` vectors of sums. Together they
should fill the registers."""

ROWS_TOGETHER = LANES // 2
"""How many rows have the lanes of their products added up together."""


@intrinsic
def _multiply_rows(typing_context, count, num_rows, size, x, addresses, following, offset, like, result):
    integer = types.int64
    signature = types.void(integer, integer, integer, x, addresses, following, integer, like, result)
    number_bytes = like.dtype.bitwidth // 8

    def generate(context, builder, signature, arguments):
        count, num_rows, size, *_, offset, _, _ = arguments
        x, result = (matrix_of(context, builder, signature.args[i], arguments[i]) for i in (3, 8))
        pointers = [
            context.make_array(signature.args[i])(context, builder, arguments[i]).data for i in (4, 5)
        ]

        def emit(count):
            def rows(n):
                numbers = [builder.add(n, INT64(i)) for i in range(ROWS_TOGETHER)]
                sources, next_sources = (
                    [builder.add(builder.load(builder.gep(pointer, [number])), offset) for number in numbers]
                    for pointer in pointers
                )
                products = _emit_products(builder, count, size, x, sources, next_sources, number_bytes)
                for i, sums in enumerate(products):
                    address = builder.add(row_of(builder, result, i), builder.mul(n, INT64(4)))
                    totals = _emit_totals(builder, sums)
                    builder.store(totals, builder.inttoptr(address, ir.PointerType(totals.type)), align=4)

            emit_loop(builder, num_rows, ROWS_TOGETHER, rows)

        emit_cases(builder, count, MOST_VECTORS, emit)
        return context.get_dummy_value()

    return signature, generate


multiply_rows = cast(Callable[..., None], _multiply_rows)
"""result[v, n] = Σ over d of x[v, d] × (number d of the row at addresses[n] + offset).

The matrices are given by their corners (see `vectors.matrix_of`). Neither their bounds nor the addresses are
checked. A product does not depend on the other products that are computed with it.

Args:
    count: 1 to `MOST_VECTORS`.
    num_rows: at least 1.
    size: a multiple of `LANES`.
    x: float32 `[count, size]`.
    addresses: int64, in bytes. Their number is `num_rows`, rounded up to a multiple of `ROWS_TOGETHER`.
    following: like `addresses`, of the rows that are multiplied next. They are fetched into the caches
        meanwhile.
    offset: how many bytes are added to each address.
    like: an array of the rows' dtype: float32, or the 16 bits of bfloat16.
    result: float32 `[count, num_rows]`, with `num_rows` rounded up in the same way. It is overwritten.
"""


def _emit_products(builder, count, size, x, sources, next_sources, number_bytes):
    """For each vector of x and each row, emit a vector whose lanes add up to their dot product."""
    before = builder.block
    loop, after = (builder.append_basic_block(name) for name in ("products", "after"))
    builder.branch(loop)
    builder.position_at_end(loop)
    d = phi_of(builder, INT64, (INT64(0), before))
    sums = [[phi_of(builder, VECTOR, (zeros(), before)) for _ in sources] for _ in range(count)]
    of_x = [
        load_vector(builder, builder.add(row_of(builder, x, i), builder.mul(d, INT64(4))))
        for i in range(count)
    ]
    new_sums = [[] for _ in range(count)]
    offset = builder.mul(d, INT64(number_bytes))
    for r, (source, next_source) in enumerate(zip(sources, next_sources, strict=True)):
        row = load_vector(builder, builder.add(source, offset), number_bytes)
        emit_prefetch(builder, builder.add(next_source, offset))
        for i in range(count):
            new_sums[i].append(multiply_add(builder, of_x[i], row, sums[i][r]))
    next_d = builder.add(d, INT64(LANES))
    d.add_incoming(next_d, loop)
    for phis, news in zip(sums, new_sums, strict=True):
        for phi, new in zip(phis, news, strict=True):
            phi.add_incoming(new, loop)
    builder.cbranch(builder.icmp_signed("<", next_d, size), loop, after)
    builder.position_at_end(after)
    return new_sums


def _emit_totals(builder, vectors):
    """The sums over the lanes of `LANES / 2` vectors, as one vector of `LANES / 2` numbers.

    Each round turns two vectors into one: half of its lanes hold sums of two lanes of the first vector, the
    other half sums of two lanes of the second. After three rounds one vector is left, in which two
    neighbouring lanes belong to each of the eight vectors. These two are added up last.
    """
    distance = LANES // 2
    while len(vectors) > 1:
        half = len(vectors) // 2
        vectors = [_halved(builder, vectors[i], vectors[i + half], distance) for i in range(half)]
        distance //= 2
    return _halved(builder, vectors[0], vectors[0], 1, lanes=range(0, LANES, 2))


def _halved(builder, a, b, distance, lanes=range(LANES)):
    """Add up pairs of lanes that are `distance` apart.

    Lanes whose number has the bit `distance` get the sums of pairs of b, the other lanes those of a.
    """
    nearer = [lane if not lane & distance else LANES + lane - distance for lane in lanes]
    farther = [lane + distance if not lane & distance else LANES + lane for lane in lanes]
    halves = []
    for picked in (nearer, farther):
        mask = ir.Constant(ir.VectorType(INT32, len(picked)), picked)
        halves.append(builder.shuffle_vector(a, b, mask))
    return builder.fadd(*halves)
