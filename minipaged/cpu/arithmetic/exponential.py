"""exp for float32. The same source computes it for a single number and for a vector.

The exp of C's library takes one number at a time, but the softmaxes of a step need hundreds of thousands.

Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from minipaged.cpu.arithmetic.vectors import LANES, VECTOR
from minipaged.cpu.compiler.instructions import INT32

LOG2_E = 1.4426950408889634
LN2_UPPER = 0.693359375  # it has few bits, so its product with a small integer is exact
LN2_LOWER = -2.12194440e-4  # LN2_UPPER + LN2_LOWER = ln 2
LOWEST = -87.0  # exp of this is near the smallest normal number
COEFFICIENTS = tuple(float(np.float32(1 / divisor)) for divisor in (5040, 720, 120, 24, 6, 2, 1, 1))  # 1 / n!


def emit_exponential(builder, x):
    """exp(x) for a float32 ≤ 0 or a vector of them, within 2e-7. It is 0 below −87, and NaN stays NaN.

    x is k ln 2 + r, where k is an integer and r is within ±ln 2 / 2. exp(r) is a short series. 2 to the k is
    a float32 with k in its exponent bits.
    """
    many = x.type == VECTOR
    integers = ir.VectorType(INT32, LANES) if many else INT32

    def constant(type_, value):
        return ir.Constant(type_, [value] * LANES if many else value)

    def call(name, *arguments):
        signature = ir.FunctionType(x.type, [x.type] * len(arguments))
        full_name = f"llvm.{name}.{'v' + str(LANES) if many else ''}f32"
        return builder.call(
            cgutils.get_or_insert_function(builder.module, signature, full_name), list(arguments)
        )

    above = builder.fcmp_ordered(">", x, constant(x.type, LOWEST))
    clipped = builder.select(above, x, constant(x.type, LOWEST))
    k = call("floor", call("fma", clipped, constant(x.type, LOG2_E), constant(x.type, 0.5)))
    r = call("fma", k, constant(x.type, -LN2_UPPER), clipped)
    r = call("fma", k, constant(x.type, -LN2_LOWER), r)
    series = constant(x.type, COEFFICIENTS[0])
    for coefficient in COEFFICIENTS[1:]:
        series = call("fma", series, r, constant(x.type, coefficient))
    exponent = builder.add(builder.fptosi(k, integers), constant(integers, 127))
    power = builder.bitcast(builder.shl(exponent, constant(integers, 23)), x.type)
    result = builder.fmul(series, power)
    result = builder.select(
        builder.fcmp_ordered("<", x, constant(x.type, LOWEST)), constant(x.type, 0.0), result
    )
    return builder.select(builder.fcmp_unordered("uno", x, x), x, result)


@intrinsic
def _exponential(typing_context, x):
    def generate(context, builder, signature, arguments):
        return emit_exponential(builder, arguments[0])

    return types.float32(types.float32), generate


exponential = cast(Callable[[object], np.float32], _exponential)
"""(float32) -> its exp, computed as in `emit_exponential`."""
