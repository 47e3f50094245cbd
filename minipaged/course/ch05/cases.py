"""Cases for chapter 5's tests, on the device at hand, and the comparison of a result with the right one."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

from minipaged.course.ch03.step import Step, make_step, shape_of
from minipaged.course.ch05.rung import DEVICE
from minipaged.course.drawing import draw_tables
from minipaged.course.expect import expect, expect_equal


def decode_step(
    seq_lens: Sequence[int],
    *,
    block_size: int = 16,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 16,
    seed: int = 0,
) -> Step:
    """A decode step of sequences in scattered blocks. Slots that no sequence uses hold NaN."""
    return make_step(
        seq_lens,
        [1] * len(seq_lens),
        block_size=block_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        seed=seed,
    )


def arguments(step: Step) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """What a decode function gets: query, kv_layer, block_tables, seq_lens and scale."""
    metadata = step.metadata
    tensors = (step.query, step.kv_layer, metadata.block_tables, metadata.seq_lens)
    query, kv_layer, block_tables, seq_lens = (each.to(DEVICE) for each in tensors)
    return query, kv_layer, block_tables, seq_lens, step.scale


def expect_attention(got: Tensor, step: Step, case: str) -> None:
    """Compare each row with PyTorch's attention, and name the first sequence and head that differ.

    Raises:
        Wrong: a row is not as expected.
    """
    wanted = step.expected()
    expect_equal(
        shape_of(got),
        tuple(wanted.shape),
        case=f"shape of {case}",
        rule="one row for each query head of each sequence: [S, num_heads, head_dim]",
    )
    got = got.cpu()
    group = wanted.shape[1] // step.kv_layer.shape[3]
    for s, seq_len in enumerate(step.metadata.seq_lens_list):
        state = draw_tables({f"seq {s}": step.tables[s]}, note=f"{seq_len} tokens")
        for head in range(wanted.shape[1]):
            where = f"sequence {s}, query head {head}, of {case}"
            expect(
                not bool(got[s, head].isnan().any()),
                case=where,
                rule=f"the sequence has {seq_len} tokens; every slot that no sequence uses holds NaN. Either "
                "such a slot was loaded, or this row was not stored, or it was divided by 0",
                expected="no NaN",
                got="NaN",
                state=state,
            )
            error = (got[s, head] - wanted[s, head]).abs().max().item()
            expect(
                error <= 1e-5,
                case=where,
                rule=f"it attends to all {seq_len} tokens in KV head {head // group}, with the scores "
                f"multiplied by {step.scale:.3g}",
                expected="PyTorch's attention, within 1e-5",
                got=f"up to {error:.2g} away",
                state=state,
            )


def sparse_cache(block_stride: int, num_blocks: int, slot_numbers: tuple[int, int, int]) -> Tensor:
    """A cache of float32 whose blocks are `block_stride` numbers apart, in memory that is reserved, not used.

    Only pages that are touched take memory. The cache lies in the middle: a block's address that wraps at 2³¹
    is still inside the reserved memory, so that a wrong kernel gives wrong numbers and does not crash.

    Args:
        block_stride: numbers from a block to the next; at least twice the numbers of a block.
        num_blocks: blocks.
        slot_numbers: block_size, num_kv_heads and head_dim.
    """
    block_size, num_kv_heads, head_dim = slot_numbers
    half = max(2**31, num_blocks * block_stride)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    memory = torch.frombuffer(mmap.mmap(-1, 2 * half * 4, flags=flags), dtype=torch.float32)
    slot_stride = num_kv_heads * head_dim
    sizes = (2, num_blocks, block_size, num_kv_heads, head_dim)
    strides = (block_size * slot_stride, block_stride, slot_stride, head_dim, 1)
    cache = memory.as_strided(sizes, strides, half)
    # The record of a test's calls copies their arguments. Copying this one would use all of the memory.
    cache.__deepcopy__ = lambda memo: cache  # pyright: ignore[reportAttributeAccessIssue]
    return cache
