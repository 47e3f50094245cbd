"""exp for float32, written so that LLVM computes it for a vector of numbers at once.

The one in C's library takes one number at a time, and a step's softmaxes hundreds of thousands.

Importing this module imports numba.
"""

from __future__ import annotations

import numpy as np

from minipaged.cpu.compiled import compiled

LOG2_E = np.float32(1.4426950408889634)
LN2_UPPER = np.float32(0.693359375)  # few enough bits that a small integer times it is exact
LN2_LOWER = np.float32(-2.12194440e-4)  # what is missing to ln 2
LOWEST = np.float32(-87.0)  # e to this is near the smallest normal number
COEFFICIENTS = tuple(np.float32(1 / divisor) for divisor in (5040, 720, 120, 24, 6, 2))  # 1 / n!


@compiled()
def exponential(x: np.float32) -> np.float32:
    """e to the x, for x ≤ 0, within 2e-7 of it; 0 below −87, and NaN stays NaN.

    x is k ln 2 + r with a whole k and r within ±ln 2 / 2. Then e to the r is a short series, and 2 to the
    k is k in the bits of a float32's exponent.
    """
    clipped = x if x > LOWEST else LOWEST
    k = np.floor(clipped * LOG2_E + np.float32(0.5))
    r = clipped - k * LN2_UPPER - k * LN2_LOWER
    series = COEFFICIENTS[0]
    for coefficient in COEFFICIENTS[1:]:
        series = series * r + coefficient
    series = (series * r + np.float32(1)) * r + np.float32(1)
    power = np.uint32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)
    if x >= LOWEST:
        return series * power
    return np.float32(0) if x < LOWEST else x
