"""How large the kernels' tiles are, for each head dimension, dtype and GPU.

A tile must be large enough to keep the memory busy, and small enough for the registers and the shared
memory of a program. `minipaged bench kernel --compile-only` prints how much of both the compiler used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton

from minipaged.errors import ConfigError
from minipaged.triton_kernels.gpu import Gpu

MIN_DOT_SIDE = 16
"""`tl.dot` accepts no matrix with a shorter side."""
TILE_BYTES = 8 * 1024
"""Bytes of keys that a program loads at once. It loads the same number of bytes of values."""
SCRATCH_BYTES = 2 * 1024
"""The most shared memory that sums across threads and barriers take together."""
FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Tiles:
    """The shape of one program.

    Attributes:
        rows: rows of the program's tile: query heads (decode), or queries times query heads (prefill).
        tokens: tokens whose keys and values are in one tile.
        padded_dim: the head dimension, padded to a power of two.
        factor_bytes: bytes of a number when it is multiplied. Without tensor cores, numbers are multiplied in
            float32.
        num_warps: groups of 32 threads in the program.
        num_stages: stages of the pipeline. With 3, the next tile is loaded while one is computed. With 2, no
            tile is loaded ahead.
    """

    rows: int
    tokens: int
    padded_dim: int
    factor_bytes: int
    num_warps: int
    num_stages: int = 3

    @property
    def shared_bytes(self) -> int:
        """The most shared memory that the compiler may take for a program, in bytes.

        With three stages there are two buffers for keys, and two for values. Hopper and Blackwell GPUs
        multiply 16-bit numbers in the background, which takes a third buffer for keys, and for values.
        """
        num_buffers = 1
        if self.num_stages == 3:
            num_buffers = 2 if self.factor_bytes == FLOAT32_BYTES else 3
        rows_of_heads = self.rows + 2 * num_buffers * self.tokens  # queries, keys, values
        weights = self.rows * self.tokens
        return (rows_of_heads * self.padded_dim + weights) * self.factor_bytes + SCRATCH_BYTES


def decode_tiles(group: int, head_dim: int, dtype: torch.dtype, gpu: Gpu) -> Tiles:
    """Tiles of `paged_decode` and `paged_decode_split`.

    Args:
        group: query heads for each KV head.
        head_dim: the head dimension.
        dtype: the dtype of the cache.
        gpu: the limits of the GPU on which the kernel runs.

    Raises:
        ConfigError: one program needs more shared memory than the GPU has.
    """
    rows = max(MIN_DOT_SIDE, triton.next_power_of_2(group))
    bytes_ = _factor_bytes(dtype, gpu)
    num_warps = 8 if bytes_ == FLOAT32_BYTES or rows > 32 else 4
    return _fitting("decode", rows, 64, head_dim, bytes_, num_warps, gpu)


def prefill_tiles(group: int, head_dim: int, dtype: torch.dtype, gpu: Gpu) -> Tiles:
    """Tiles of `paged_prefill`; arguments and errors as in `decode_tiles`."""
    bytes_ = _factor_bytes(dtype, gpu)
    rows = 32 if bytes_ == FLOAT32_BYTES else 128
    if head_dim * bytes_ > 256:  # longer queries take more registers
        rows //= 2
    rows = max(rows, triton.next_power_of_2(group))
    return _fitting("prefill", rows, 32, head_dim, bytes_, 8, gpu)


def _factor_bytes(dtype: torch.dtype, gpu: Gpu) -> int:
    """Bytes of a number when it is multiplied: always those of float32 on a GPU without tensor cores."""
    return dtype.itemsize if gpu.tensor_cores else FLOAT32_BYTES


def _fitting(
    kernel: str, rows: int, max_tokens: int, head_dim: int, factor_bytes: int, num_warps: int, gpu: Gpu
) -> Tiles:
    padded_dim = max(MIN_DOT_SIDE, triton.next_power_of_2(head_dim))
    tokens = min(max_tokens, max(MIN_DOT_SIDE, TILE_BYTES // (padded_dim * factor_bytes)))
    tiles = Tiles(rows, tokens, padded_dim, factor_bytes, num_warps)
    if tiles.shared_bytes > gpu.program_bytes:
        tiles = replace(tiles, num_stages=2)
    if tiles.shared_bytes > gpu.program_bytes:
        raise ConfigError(
            f"the GPU is too small for attention_backend='triton' with heads of {head_dim} numbers: a "
            f"program of {kernel} may need {tiles.shared_bytes:,} bytes of shared memory ({rows} queries, "
            f"{tokens} keys and {tokens} values of {padded_dim} × {factor_bytes} bytes each, and their "
            f"weights), and can have {gpu.program_bytes:,}: use attention_backend='reference'"
        )
    return tiles
