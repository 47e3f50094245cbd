"""write_kv and copy_blocks: the two kernels that write to the cache. They only move bytes."""

# pyright: reportCallIssue=false
# (A launch takes options that are not parameters of the kernel.)

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl

from minipaged.kv.cache import BlockCopy
from minipaged.transfer import to_device

COPY_TILE = 4096
"""How many numbers one program of `copy_blocks` copies."""


@triton.jit
def write_kernel(
    kv_layer,  # [2, num_blocks, block_size, num_kv_heads, head_dim]
    key,  # [T, num_kv_heads, head_dim]
    value,  # as key
    slot_mapping,  # int64 [T]
    values_stride,  # from the keys to the values
    block_stride,
    slot_stride,
    kv_head_stride,
    key_stride,
    key_head_stride,
    value_stride,
    value_head_stride,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PADDED: tl.constexpr,  # NUM_KV_HEADS * HEAD_DIM, padded to a power of two
):
    """One program for each token."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token)  # int64, so the products below are int64 too
    if slot < 0:
        return
    at = tl.arange(0, PADDED)  # [PADDED]
    head, dim = at // HEAD_DIM, at % HEAD_DIM
    inside = at < NUM_KV_HEADS * HEAD_DIM
    keys = tl.load(key + token * key_stride + head * key_head_stride + dim, mask=inside)
    values = tl.load(value + token * value_stride + head * value_head_stride + dim, mask=inside)
    target = slot // BLOCK_SIZE * block_stride + slot % BLOCK_SIZE * slot_stride
    target += head * kv_head_stride + dim
    tl.store(kv_layer + target, keys, mask=inside)
    tl.store(kv_layer + values_stride + target, values, mask=inside)


def write_kv(
    kv_layer: torch.Tensor, key: torch.Tensor, value: torch.Tensor, slot_mapping: torch.Tensor
) -> None:
    """Store the keys and values of a step's tokens in their slots. Implements `WriteKV`.

    Args:
        kv_layer: `[2, num_blocks, block_size, num_kv_heads, head_dim]`; the last dimension is
            contiguous, as in all tensors here.
        key: `[T, num_kv_heads, head_dim]`.
        value: as `key`.
        slot_mapping: int64 `[T]`, no slot twice. A token with slot −1 is padding and is skipped.
    """
    num_tokens, num_kv_heads, head_dim = key.shape
    if num_tokens == 0:
        return
    write_kernel[(num_tokens,)](
        kv_layer,
        key,
        value,
        slot_mapping,
        *kv_layer.stride()[:4],
        *key.stride()[:2],
        *value.stride()[:2],
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=kv_layer.shape[2],
        PADDED=triton.next_power_of_2(num_kv_heads * head_dim),
        enable_fp_fusion=True,
    )


@triton.jit
def copy_kernel(
    data,  # [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim], contiguous
    copies,  # int64 [C, 2]: source and target blocks
    plane_stride,  # from a layer's keys to its values; also from its values to the next layer's keys
    block_stride,  # numbers in a block
    TILE: tl.constexpr,
):
    """One program copies a tile of one block, in one layer's keys or values."""
    copy = tl.program_id(0).to(tl.int64)
    plane = data + tl.program_id(1).to(tl.int64) * plane_stride
    at = tl.program_id(2) * TILE + tl.arange(0, TILE)  # [TILE]
    source = tl.load(copies + 2 * copy)  # int64, so the products below are int64 too
    target = tl.load(copies + 2 * copy + 1)
    inside = at < block_stride
    numbers = tl.load(plane + source * block_stride + at, mask=inside)
    tl.store(plane + target * block_stride + at, numbers, mask=inside)


def copy_blocks(kv_data: torch.Tensor, copies: Sequence[BlockCopy]) -> None:
    """Do a step's copies, all layers and all pairs in one launch.

    All sources are read before any target is written, as in `KVCache.copy_blocks`. Programs of one kernel
    would race if the target of one copy is the source of another, so PyTorch does such copies.

    Args:
        kv_data: `[num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]`, contiguous.
        copies: pairs of blocks, no target twice.
    """
    if not copies:
        return
    listed = np.array([(c.source, c.target) for c in copies], dtype=np.int64)  # [C, 2]
    (pairs,) = to_device([listed], kv_data.device)  # int64 [C, 2]
    if {c.source for c in copies} & {c.target for c in copies}:
        kv_data.index_copy_(2, pairs[:, 1], kv_data.index_select(2, pairs[:, 0]))
        return
    num_layers, plane_stride, block_stride = kv_data.shape[0], kv_data.stride(1), kv_data.stride(2)
    tile = min(COPY_TILE, triton.next_power_of_2(block_stride))
    # The copies are the grid's first dimension, which may be as large as 2**31. The others are at most
    # 65,535.
    copy_kernel[(len(copies), 2 * num_layers, -(-block_stride // tile))](
        kv_data, pairs, plane_stride, block_stride, TILE=tile, enable_fp_fusion=True
    )
