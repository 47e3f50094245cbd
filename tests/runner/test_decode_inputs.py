"""The input buffers of a captured step: padding rows do nothing, and no value of an earlier step is used."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from minipaged.runner.decode_inputs import DecodeInputs, pad_rows
from minipaged.transfer import IntArray, to_device

CPU = torch.device("cpu")


def step(num_rows: int, num_blocks: int) -> list[IntArray]:
    """A step in which all numbers of a row are the number of the row, from 1."""
    column = np.arange(1, num_rows + 1, dtype=np.int64)
    tables = np.arange(1, num_rows * num_blocks + 1, dtype=np.int32).reshape(num_rows, num_blocks)
    return [column, column + 10, column + 20, column.astype(np.int32), tables]


def test_rows_of_padding() -> None:
    token_ids, positions, slots, seq_lens, tables = pad_rows(step(2, 3), 4)
    assert token_ids.tolist() == [1, 2, 0, 0]
    assert positions.tolist() == [11, 12, 0, 0]
    assert slots.tolist() == [21, 22, -1, -1], "nothing is stored"
    assert seq_lens.tolist() == [1, 2, 0, 0], "nothing is read"
    assert tables.tolist() == [[1, 2, 3], [4, 5, 6], [0, 0, 0], [0, 0, 0]]
    for padded, given in zip((token_ids, positions, slots, seq_lens, tables), step(2, 3), strict=True):
        assert padded.dtype == given.dtype


def test_a_smaller_step_after_a_larger_one() -> None:
    """Old values remain only in table columns that the step's shorter sequences do not read."""
    inputs = DecodeInputs.of_padding(8, 5, CPU)
    addresses = [inputs.token_ids.data_ptr(), inputs.block_tables.data_ptr()]
    inputs.first(8).fill(to_device(pad_rows(step(7, 5), 8), CPU))
    four = inputs.first(4)
    four.fill(to_device(pad_rows(step(3, 2), 4), CPU))
    assert four.token_ids.tolist() == [1, 2, 3, 0]
    assert four.slot_mapping.tolist() == [21, 22, 23, -1]
    assert four.seq_lens.tolist() == [1, 2, 3, 0]
    assert four.block_tables[:, :2].tolist() == [[1, 2], [3, 4], [5, 6], [0, 0]]
    assert [four.token_ids.data_ptr(), four.block_tables.data_ptr()] == addresses, "a graph knows addresses"
    assert inputs.seq_lens[4:].tolist() == [5, 6, 7, 0], "rows beyond the bucket are not touched"


@pytest.mark.parametrize("field", range(5))
def test_other_shapes_and_dtypes_are_refused(field: int) -> None:
    """`copy_` would broadcast or convert them."""
    inputs = DecodeInputs.of_padding(3, 4, CPU)
    right = to_device(step(3, 2), CPU)
    for wrong in (right[field][:1], right[field].float()):
        with pytest.raises(ValueError, match="in the place of"):
            inputs.fill([*right[:field], wrong, *right[field + 1 :]])
    inputs.fill(right)


def test_before_the_first_step_all_is_padding() -> None:
    inputs = DecodeInputs.of_padding(2, 3, CPU)
    assert inputs.slot_mapping.tolist() == [-1, -1]
    assert inputs.seq_lens.tolist() == [0, 0]
    assert inputs.block_tables.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_attention_is_told_of_the_greatest_length() -> None:
    """So the choices that attention makes from the lengths hold for every step."""
    inputs = DecodeInputs.of_padding(3, 4, CPU)
    metadata = inputs.metadata(64)
    assert metadata.seq_lens_list == (64, 64, 64)
    assert metadata.query_start_list == (0, 1, 2, 3)
    assert metadata.query_start_loc.tolist() == [0, 1, 2, 3]
    assert metadata.num_decodes == 3
    assert metadata.seq_lens is inputs.seq_lens
    assert metadata.block_tables is inputs.block_tables
    assert metadata.slot_mapping is inputs.slot_mapping
