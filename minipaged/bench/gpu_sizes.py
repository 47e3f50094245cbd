"""The sizes of the kernel cases of `minipaged bench gpu`: on a GPU, and for a rehearsal."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minipaged.bench.attention_case import Shape, Span


@dataclass(frozen=True)
class KernelSizes:
    """The sizes of the attention kernels' cases.

    Attributes:
        copied_bytes: size of the copy that measures the memory's bandwidth.
        far_numbers: how many numbers the keys of the far-blocks case have. The case reads only the last
            blocks. On a GPU there are more than 2³¹ numbers.
        batches, contexts, shapes: a decode is measured for each combination.
        paged_batch, paged_context: the case for the comparison of block sizes. The cost of paging is
            measured with the same batch at every context.
        prompts: a prefill is measured for each of these lists of sequences.
        block_sizes: block sizes of the comparison.
        head_dims: head dimensions for which every kernel is checked.
        dtype: dtype of queries and cache.
    """

    copied_bytes: int
    far_numbers: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    shapes: tuple[Shape, ...]
    paged_batch: int
    paged_context: int
    prompts: tuple[tuple[Span, ...], ...]
    block_sizes: tuple[int, ...]
    head_dims: tuple[int, ...]
    dtype: torch.dtype


FULL = KernelSizes(
    copied_bytes=4 * 2**30,
    far_numbers=2**31 + 2**24,
    batches=(1, 8, 64, 256),
    contexts=(512, 4096, 32_768),
    shapes=(Shape(32, 8, 128), Shape(16, 8, 128), Shape(28, 4, 128)),
    paged_batch=64,
    paged_context=4096,
    prompts=((Span(8192, 8192),), (Span(2048, 2048),) * 4, (Span(2048, 16_384),)),
    block_sizes=(16, 32, 64, 128),
    head_dims=(64, 80, 96, 128, 256),
    dtype=torch.bfloat16,
)
REHEARSAL = KernelSizes(
    copied_bytes=2**20,
    far_numbers=2**16,
    batches=(1, 2),
    contexts=(16, 40),
    shapes=(Shape(2, 1, 64), Shape(3, 1, 64)),
    paged_batch=2,
    paged_context=40,
    prompts=((Span(20, 20),), (Span(4, 30),) * 2),
    block_sizes=(16, 32),
    head_dims=(80,),
    dtype=torch.bfloat16,
)
