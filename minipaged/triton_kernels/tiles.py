"""How large the kernels' tiles are, for each head dimension and dtype.

A tile must be large enough to keep the memory busy, and small enough for the registers of a program.
`minipaged bench kernel --compile-only` prints how many registers the compiler used.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton

MIN_DOT_SIDE = 16
"""`tl.dot` accepts no matrix with a shorter side."""
FLOAT32_BYTES = 4
"""Tensor cores do not compute float32. Without them a tile of the same size needs more registers, and so
more threads."""
DECODE_TILE_BYTES = 16 * 1024
"""Bytes of keys that a decode program loads at once. It loads the same number of bytes of values."""


@dataclass(frozen=True)
class Tiles:
    """The shape of one program.

    Attributes:
        rows: rows of the program's tile: query heads (decode), or queries times query heads (prefill).
        tokens: tokens whose keys and values are in one tile.
        padded_dim: the head dimension, padded to a power of two.
        num_warps: groups of 32 threads in the program.
        num_stages: tiles in flight: while one is computed, the next is loaded.
    """

    rows: int
    tokens: int
    padded_dim: int
    num_warps: int
    num_stages: int


def decode_tiles(group: int, head_dim: int, itemsize: int) -> Tiles:
    """Tiles of `paged_decode` and `paged_decode_split`.

    Args:
        group: query heads for each KV head.
        head_dim: the head dimension.
        itemsize: bytes of one number in the cache.
    """
    rows = max(MIN_DOT_SIDE, triton.next_power_of_2(group))
    padded_dim = max(MIN_DOT_SIDE, triton.next_power_of_2(head_dim))
    tokens = DECODE_TILE_BYTES // (padded_dim * itemsize)
    return Tiles(
        rows=rows,
        tokens=min(128, max(MIN_DOT_SIDE, tokens)),
        padded_dim=padded_dim,
        num_warps=8 if itemsize == FLOAT32_BYTES or rows > 32 else 4,
        num_stages=2,
    )


def prefill_tiles(group: int, head_dim: int, itemsize: int) -> Tiles:
    """Tiles of `paged_prefill`; arguments as in `decode_tiles`."""
    padded_dim = max(MIN_DOT_SIDE, triton.next_power_of_2(head_dim))
    if itemsize == FLOAT32_BYTES:
        rows, tokens = 32 if padded_dim <= 128 else 16, 32
    else:
        rows, tokens = (128, 64) if padded_dim <= 128 else (64, 32)
        if triton.next_power_of_2(group) != group:
            tokens //= 2  # dividing rows into query and head then takes registers
    return Tiles(
        rows=max(rows, triton.next_power_of_2(group)),
        tokens=tokens,
        padded_dim=padded_dim,
        num_warps=8,
        num_stages=2,
    )
