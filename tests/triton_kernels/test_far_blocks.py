"""Blocks more than 2³¹ numbers into a cache: their addresses do not fit into 32 bits.

The cache is a sparse file. Only the few pages that are written take disk space.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from minipaged.triton_kernels.attention import TritonAttention
from minipaged.triton_kernels.cache import write_kv
from tests.attention.ragged import Heads, Span, make_step
from tests.triton_kernels.steps import DEVICE, assert_right, gpu_with

BLOCK_STRIDE = 2**26
NUM_BLOCKS = 34
BLOCK_SIZE = 16
HEADS = Heads(num_kv_heads=1, group=2, head_dim=64)

pytestmark = [
    pytest.mark.skipif(
        DEVICE.type != "cpu", reason="`minipaged bench gpu` does this on a GPU, in real memory"
    ),
    pytest.mark.skipif(sys.platform != "linux", reason="a file with holes"),
]


@pytest.fixture
def far_layer(tmp_path: Path) -> Tensor:
    """[2, 34, 16, 1, 64] float16. Each block begins 2²⁶ numbers after the previous block."""
    block = BLOCK_SIZE * HEADS.head_dim
    size = (NUM_BLOCKS - 1) * BLOCK_STRIDE + 2 * block
    memory = torch.from_file(str(tmp_path / "cache"), shared=True, size=size, dtype=torch.float16)
    shape = (2, NUM_BLOCKS, BLOCK_SIZE, 1, HEADS.head_dim)
    return memory.as_strided(shape, (block, BLOCK_STRIDE, HEADS.head_dim, HEADS.head_dim, 1))


@pytest.mark.parametrize("num_multiprocessors", [4, 64])
def test_attention_reads_them(far_layer: Tensor, num_multiprocessors: int) -> None:
    """A prompt, and decodes with and without a split. The last block is 2.2 × 10⁹ numbers away."""
    near = make_step([Span(1, 300), Span(1, 20), Span(9, 25)], HEADS, BLOCK_SIZE, dtype=torch.float16)
    num_blocks = near.kv_layer.shape[1]
    assert 20 < num_blocks <= NUM_BLOCKS
    assert (NUM_BLOCKS - 1) * BLOCK_STRIDE > 2**31
    moved = NUM_BLOCKS - num_blocks
    far_layer[:, moved:] = near.kv_layer
    metadata = dataclasses.replace(near.metadata, block_tables=near.metadata.block_tables + moved)
    attention = TritonAttention(gpu_with(num_multiprocessors))
    assert_right(near, attention(near.query, far_layer, metadata, HEADS.scale))


def test_write_kv_writes_them(far_layer: Tensor) -> None:
    key, value = torch.randn(2, 2, 1, HEADS.head_dim).half().unbind(0)
    last = NUM_BLOCKS - 1
    write_kv(far_layer, key, value, torch.tensor([last * BLOCK_SIZE + 3, BLOCK_SIZE + 1]))
    assert torch.equal(far_layer[:, last, 3], torch.stack([key[0], value[0]]))
    assert torch.equal(far_layer[:, 1, 1], torch.stack([key[1], value[1]]))
    assert not far_layer[:, last, :3].any()
    assert not far_layer[:, 0].any()
