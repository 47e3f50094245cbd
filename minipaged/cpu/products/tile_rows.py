"""The work on a panel's rows besides multiplying: writing sums to the result, gating, and widening.

These loops are written with LLVM vectors. A row of a panel always has two of them. A loop that numba compiles
from Python checks for each row whether arrays overlap. This check took longer than writing the 32 sums.

Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from minipaged.cpu.arithmetic.exponential import emit_exponential
from minipaged.cpu.arithmetic.vectors import (
    LANES,
    VECTOR,
    emit_cases,
    emit_loop,
    load_vector,
    matrix_of,
    rounded,
    row_of,
    store_vector,
)
from minipaged.cpu.compiler.instructions import INT64
from minipaged.cpu.products.tile import PANEL


def _vector_of(builder, matrix, row, column):
    """The address of the vector that begins at a column."""
    return builder.add(row_of(builder, matrix, row), INT64(column * matrix.number_bytes))


@intrinsic
def _write_rows(typing_context, num_rows, sums, bias, residual, has_residual, result):
    signature = types.void(types.int64, sums, types.int64, residual, types.boolean, result)

    def generate(context, builder, signature, arguments):
        num_rows, _, bias, _, has_residual, _ = arguments
        sums, residual, result = (
            matrix_of(context, builder, signature.args[i], arguments[i]) for i in (1, 3, 5)
        )
        number_bytes = result.number_bytes

        def emit(case):
            with_bias, with_residual = case - 1 & 1, case - 1 & 2

            def write(row):
                for column in range(0, PANEL, LANES):
                    vector = load_vector(builder, _vector_of(builder, sums, row, column))
                    if with_bias:
                        address = builder.add(bias, INT64(column * number_bytes))
                        vector = builder.fadd(vector, load_vector(builder, address, number_bytes))
                    if with_residual:
                        address = _vector_of(builder, residual, row, column)
                        other = load_vector(builder, address, number_bytes)
                        vector = builder.fadd(rounded(builder, vector, number_bytes), other)
                    store_vector(builder, vector, _vector_of(builder, result, row, column), number_bytes)

            emit_loop(builder, num_rows, 1, write)

        has_bias = builder.zext(builder.icmp_signed("!=", bias, INT64(0)), INT64)
        twos = builder.shl(builder.zext(has_residual, INT64), INT64(1))
        emit_cases(builder, builder.add(builder.add(has_bias, twos), INT64(1)), 4, emit)
        return context.get_dummy_value()

    return signature, generate


write_rows = cast(Callable[..., None], _write_rows)
"""result[r, p] = sums[r, p] + bias[p] + residual[r, p], rounded before and after the residual is added.

The matrices are given by their corners (see `vectors.matrix_of`). Their bounds are not checked.

Args:
    num_rows: at least 1.
    sums: float32 `[num_rows, PANEL]`.
    bias: the address of the bias `[PANEL]`, in the dtype of `result`; 0 if there is no bias.
    residual: `[num_rows, PANEL]` in the dtype of `result`. It may be `result` itself.
    has_residual: whether to add the residual.
    result: `[num_rows, PANEL]`, float32 or the bits of bfloat16.
"""


@intrinsic
def _gate_rows(typing_context, num_rows, gate_up, like, result):
    signature = types.void(types.int64, gate_up, like, result)
    number_bytes = like.dtype.bitwidth // 8

    def generate(context, builder, signature, arguments):
        gate_up, result = (matrix_of(context, builder, signature.args[i], arguments[i]) for i in (1, 3))

        def gate_row(row):
            for column in range(0, PANEL, LANES):
                gate, up = (
                    rounded(
                        builder, load_vector(builder, _vector_of(builder, gate_up, row, left)), number_bytes
                    )
                    for left in (column, PANEL + column)
                )
                gated = rounded(builder, builder.fmul(gate, _emit_sigmoid(builder, gate)), number_bytes)
                product = rounded(builder, builder.fmul(gated, up), number_bytes)
                store_vector(builder, product, _vector_of(builder, result, row, column))

        emit_loop(builder, arguments[0], 1, gate_row)
        return context.get_dummy_value()

    return signature, generate


gate_rows = cast(Callable[..., None], _gate_rows)
"""result[r, p] = silu(gate_up[r, p]) × gate_up[r, PANEL + p], where silu(g) = g / (1 + e⁻ᵍ).

Args:
    num_rows: at least 1.
    gate_up: float32, the corner of `[num_rows, 2 * PANEL]`.
    like: an array in the model's dtype, to which every result is rounded.
    result: float32, the corner of `[num_rows, PANEL]`.
"""


def _emit_sigmoid(builder, x):
    """1 / (1 + e⁻ˣ). It computes exp of −|x|, which does not overflow."""
    zero, one = (ir.Constant(VECTOR, [value] * LANES) for value in (0.0, 1.0))
    is_negative = builder.fcmp_ordered("<", x, zero)
    power = emit_exponential(builder, builder.select(is_negative, x, builder.fneg(x)))
    share = builder.fdiv(one, builder.fadd(one, power))
    return builder.select(is_negative, builder.fmul(power, share), share)


@intrinsic
def _widen_rows(typing_context, num_rows, source, result):
    signature = types.void(types.int64, source, result)

    def generate(context, builder, signature, arguments):
        source, result = (matrix_of(context, builder, signature.args[i], arguments[i]) for i in (1, 2))

        def widen(row):
            for column in range(0, PANEL, LANES):
                vector = load_vector(builder, _vector_of(builder, source, row, column), source.number_bytes)
                store_vector(builder, vector, _vector_of(builder, result, row, column))

        emit_loop(builder, arguments[0], 1, widen)
        return context.get_dummy_value()

    return signature, generate


widen_rows = cast(Callable[..., None], _widen_rows)
"""Convert the numbers `[num_rows, PANEL]` at the corner `source` to float32 numbers at the corner `result`.
num_rows is at least 1."""
