"""The two halves of a softmax over a row of scores: the maximum, and exp of each score minus the maximum.

In a maximum or a sum, each step of the loop needs the result of the step before. LLVM does not turn such a
loop into vector instructions, so the functions here are written with LLVM vectors.

Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from minipaged.cpu.arithmetic.exponential import emit_exponential
from minipaged.cpu.arithmetic.vectors import (
    LANES,
    load_vector,
    matrix_of,
    splat,
    store_vector,
    sum_of_lanes,
    zeros,
)
from minipaged.cpu.compiler.instructions import INT32, INT64

ROW = 64
"""How many scores a row has."""


def _addresses(context, builder, signature, arguments):
    """The addresses of a row's vectors."""
    first = matrix_of(context, builder, signature.args[0], arguments[0]).address
    return [builder.add(first, INT64(4 * LANES * i)) for i in range(ROW // LANES)]


def _larger(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@intrinsic
def _largest(typing_context, scores):
    def generate(context, builder, signature, arguments):
        vectors = [load_vector(builder, each) for each in _addresses(context, builder, signature, arguments)]
        largest = vectors[0]
        for vector in vectors[1:]:
            largest = _larger(builder, largest, vector)
        distance = LANES // 2
        while distance:
            lanes = ir.Constant(ir.VectorType(INT32, LANES), [lane ^ distance for lane in range(LANES)])
            largest = _larger(builder, largest, builder.shuffle_vector(largest, largest, lanes))
            distance //= 2
        return builder.extract_element(largest, INT32(0))

    return types.float32(scores), generate


largest = cast(Callable[[object], np.float32], _largest)
"""The largest of the `ROW` float32 numbers that begin at a corner (see `vectors.matrix_of`). If one of the
numbers is NaN, the result may be any of them."""


@intrinsic
def _weigh(typing_context, scores, highest):
    def generate(context, builder, signature, arguments):
        highest = splat(builder, arguments[1])
        total = zeros()
        for address in _addresses(context, builder, signature, arguments):
            weights = emit_exponential(builder, builder.fsub(load_vector(builder, address), highest))
            store_vector(builder, weights, address)
            total = builder.fadd(total, weights)
        return sum_of_lanes(builder, total)

    return types.float32(scores, types.float32), generate


weigh = cast(Callable[[object, object], np.float32], _weigh)
"""Replace each of the `ROW` scores at a corner by exp(score − `highest`), and return the sum of the
results."""
