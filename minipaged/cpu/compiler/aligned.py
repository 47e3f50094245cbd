"""`aligned`: room for compiled loops that begins where a cache line begins.

A vector of 16 numbers is as long as a line of 64 bytes. One that crosses into the next line takes two loads.

Importing this module imports numba.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minipaged.cpu.compiler.compiled import compiled
from minipaged.cpu.compiler.instructions import CACHE_LINE, address_of


@compiled()
def aligned(size: int) -> NDArray[np.float32]:
    """`[size]`, not filled."""
    buffer = np.empty(size + CACHE_LINE // 4, np.float32)
    first = -address_of(buffer) % CACHE_LINE // 4
    return buffer[first : first + size]
