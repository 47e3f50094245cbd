"""Read and round numbers in compiled loops. The same source serves float32 and bfloat16.

The dtype of the arrays decides which of the two it is. numba has no bfloat16, so bfloat16 numbers are passed
as uint16 arrays of their bits. A bfloat16 is the upper half of a float32. All arithmetic is in float32, and
`kept` rounds a result to the dtype of an array. So a model in bfloat16 rounds after each operation, as it
does in PyTorch.

Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from numba import types
from numba.extending import overload

NOT_A_NUMBER = np.uint16(0x7FC0)


def _number(value): ...


def _kept(value, array): ...


@overload(_number, inline="always")
def _number_in_compiled_code(value):
    if value == types.uint16:
        return lambda value: np.uint32(np.uint32(value) << np.uint32(16)).view(np.float32)
    return lambda value: value


@overload(_kept)
def _kept_in_compiled_code(value, array):
    if array.dtype != types.uint16:
        return lambda value, array: value

    def rounded(value, array):
        bits = np.float32(value).view(np.uint32)
        # Adding half of the last kept bit rounds to the nearest. A tie goes to the even number.
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        rounded_up = np.uint32(bits + np.uint32(0x7FFF) + odd)
        return np.uint16(rounded_up >> np.uint32(16)) if value == value else NOT_A_NUMBER

    return rounded


number = cast(Callable[[object], np.float32], _number)
"""(an element of an array) -> its value in float32."""

kept = cast(Callable[[object, object], object], _kept)
"""(float32, array) -> the nearest value in the array's dtype."""
