"""Arrays that are copied together arrive unchanged."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from minipaged.transfer import ALIGNMENT, IntArray, pack, to_device, unpack

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SHAPES = array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=5)
ARRAYS = st.one_of(arrays(np.int32, SHAPES), arrays(np.int64, SHAPES))


@given(several=st.lists(ARRAYS, max_size=5))
def test_they_are_packed_and_unpacked(several: list[IntArray]) -> None:
    packed = pack(several, pin_memory=False)
    tensors = unpack(packed, several)
    for tensor, array in zip(tensors, several, strict=True):
        assert torch.equal(tensor, torch.from_numpy(array))
        assert tensor.dtype == torch.from_numpy(array).dtype
        assert (tensor.data_ptr() - packed.data_ptr()) % ALIGNMENT == 0 or tensor.numel() == 0


@given(several=st.lists(ARRAYS, max_size=5))
def test_on_the_device(several: list[IntArray]) -> None:
    tensors = to_device(several, DEVICE)
    assert [tensor.device.type for tensor in tensors] == [DEVICE.type] * len(several)
    for tensor, array in zip(tensors, several, strict=True):
        assert torch.equal(tensor.cpu(), torch.from_numpy(array))


def test_arrays_that_are_no_single_piece() -> None:
    every_other = np.arange(12, dtype=np.int64).reshape(3, 4)[:, ::2]
    (tensor,) = unpack(pack([every_other], pin_memory=False), [every_other])
    assert tensor.tolist() == every_other.tolist()
