"""KVCache: the tensors that hold the contents of the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from minipaged.kv.block_pool import NULL_BLOCK
from minipaged.kv.copy_on_write import BlockCopy
from minipaged.transfer import to_device


class WriteKV(Protocol):
    """The signature of `write_kv`, for functions that replace it in the engine."""

    def __call__(self, kv_layer: Tensor, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None: ...


def write_kv(kv_layer: Tensor, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None:
    """Store the keys and values of a step's tokens in their slots.

    Args:
        kv_layer: one layer's cache, `[2, num_blocks, block_size, num_kv_heads, head_dim]`.
        key: `[T, num_kv_heads, head_dim]`.
        value: of the same shape as `key`.
        slot_mapping: int64 `[T]`, each `block_id * block_size + offset`. No slot occurs twice.
    """
    keys, values = kv_layer.flatten(1, 2).unbind(0)  # each [num_slots, num_kv_heads, head_dim]
    keys.index_copy_(0, slot_mapping, key)
    values.index_copy_(0, slot_mapping, value)


class CopyBlocks(Protocol):
    """The signature of `copy_blocks`, for functions that replace it in the engine."""

    def __call__(self, kv_data: Tensor, copies: Sequence[BlockCopy]) -> None: ...


def copy_blocks(kv_data: Tensor, copies: Sequence[BlockCopy]) -> None:
    """Do all block copies of a step at once, in all layers.

    All sources are read before any target is written, so the order of the copies does not matter.

    Args:
        kv_data: all layers' caches, `[num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]`.
        copies: at least one. No target occurs twice.
    """
    listed = np.array([(c.source, c.target) for c in copies], dtype=np.int64)  # [C, 2]
    (pairs,) = to_device([listed], kv_data.device)  # int64 [C, 2]
    sources, targets = pairs.unbind(1)  # [C] each
    kv_data.index_copy_(2, targets, kv_data.index_select(2, sources))


class KVCache:
    """The keys and values of every block in every layer.

    `data` is one tensor `[num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]`, so one
    operation can copy a block in all layers. `layers[i]` is a view of layer i.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        copy_blocks: CopyBlocks = copy_blocks,
    ) -> None:
        # Zeroing the cache would take seconds, and touch gigabytes that may never be used. It is not
        # needed: no slot is read before it is written. The one exception is the null block. Attention
        # reads it as padding, so its numbers must be finite.
        self.data = torch.empty(
            (num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim), dtype=dtype, device=device
        )
        self.data[:, :, NULL_BLOCK : NULL_BLOCK + 1] = 0  # a cache of no blocks has no null block either
        self.layers = list(self.data.unbind(0))
        self.block_size = block_size
        self._copy_blocks = copy_blocks

    @property
    def slots(self) -> Tensor:
        """A view of `data` by slot: `[num_layers, 2, num_blocks * block_size, num_kv_heads, head_dim]`."""
        return self.data.flatten(2, 3)

    def copy_slots(self, source: int, target: int, num_slots: int) -> None:
        """Copy `num_slots` slots that begin at `source` to those that begin at `target`, in all layers.

        The two ranges do not overlap.
        """
        slots = self.slots
        slots[:, :, target : target + num_slots] = slots[:, :, source : source + num_slots]

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Do a step's block copies, if there are any."""
        if copies:
            self._copy_blocks(self.data, copies)
