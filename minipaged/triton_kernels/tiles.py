"""How large the kernels' tiles are, for each head dimension and dtype.

A tile must be large enough to keep the memory busy, and its numbers must fit into the registers of
a program; `minipaged bench kernel --compile-only` prints what the compiler made of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton

MIN_DOT_SIDE = 16
"""`tl.dot` takes no matrix with a shorter side."""
FLOAT32_BYTES = 4
"""Float32 is computed without tensor cores, number by number: that takes more registers, and so more
threads for a tile of the same size."""
DECODE_TILE_BYTES = 16 * 1024
"""Of keys that a decode program loads at once; as many bytes of values come with them."""


@dataclass(frozen=True)
class Tiles:
    """The shape of one program.

    Attributes:
        rows: query heads (decode), or queries times heads (prefill), in the program's tile.
        tokens: keys and values in a tile.
        padded_dim: the head dimension, padded to a power of two.
        num_warps: groups of 32 threads in the program.
        num_stages: tiles in flight, so that the next is loaded while this one is computed.
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
            tokens //= 2  # what a row's query and head are then takes registers
    return Tiles(
        rows=max(rows, triton.next_power_of_2(group)),
        tokens=tokens,
        padded_dim=padded_dim,
        num_warps=8,
        num_stages=2,
    )
