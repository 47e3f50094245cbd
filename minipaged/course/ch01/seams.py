"""Chapter 1 in the engine: the memory plan calls its code for bytes per token and numbers of blocks."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from minipaged.course.seams import Seam
from minipaged.kv.size import KVShape, bytes_per_block


def _bytes_per_token(code: ModuleType) -> Callable[[KVShape], int]:
    def bytes_per_token(shape: KVShape) -> int:
        return code.bytes_per_token(shape.num_layers, shape.num_kv_heads, shape.head_dim, shape.dtype_bytes)

    return bytes_per_token


def _num_blocks_that_fit(code: ModuleType) -> Callable[[int, KVShape, int], int]:
    def num_blocks_that_fit(memory_bytes: int, shape: KVShape, block_size: int) -> int:
        # The engine has already subtracted weights and activations.
        return code.num_blocks_that_fit(memory_bytes, 1.0, 0, 0, bytes_per_block(shape, block_size))

    return num_blocks_that_fit


SEAMS = (
    Seam("1.1", "bytes_per_token", _bytes_per_token),
    Seam("1.2", "num_blocks_that_fit", _num_blocks_that_fit),
)
