"""DecodeInputs: the tensors that a recorded decode step reads, always at the same addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from minipaged.attention.metadata import AttentionMetadata
from minipaged.attention.paged_layout import Located
from minipaged.kv.block_pool import NULL_BLOCK
from minipaged.runner.step_batch import StepBatch
from minipaged.transfer import IntArray

NO_SLOT = -1
"""The slot of a padding row. Its key and value are not stored."""


@dataclass(frozen=True)
class DecodeInputs:
    """The inputs of a decode step, on the device. The step has B rows of one token each.

    Attributes:
        token_ids: int64 `[B]`.
        positions: int64 `[B]`.
        slot_mapping: int64 `[B]`.
        seq_lens: int32 `[B]`.
        block_tables: int32 `[B, M]`.
    """

    token_ids: Tensor
    positions: Tensor
    slot_mapping: Tensor
    seq_lens: Tensor
    block_tables: Tensor

    @classmethod
    def of_padding(cls, num_rows: int, max_blocks: int, device: torch.device) -> DecodeInputs:
        """Inputs that consist of padding rows. Padding rows store nothing and attend to nothing.

        Args:
            num_rows: B.
            max_blocks: M, the number of blocks of the longest sequence.
            device: the device of the tensors.
        """
        return cls(
            token_ids=torch.zeros(num_rows, dtype=torch.int64, device=device),
            positions=torch.zeros(num_rows, dtype=torch.int64, device=device),
            slot_mapping=torch.full((num_rows,), NO_SLOT, dtype=torch.int64, device=device),
            seq_lens=torch.zeros(num_rows, dtype=torch.int32, device=device),
            block_tables=torch.full((num_rows, max_blocks), NULL_BLOCK, dtype=torch.int32, device=device),
        )

    def first(self, num_rows: int) -> DecodeInputs:
        """Views of the first `num_rows` rows."""
        return DecodeInputs(*(getattr(self, field.name)[:num_rows] for field in fields(self)))

    def fill(self, step: Sequence[Tensor]) -> None:
        """Copy the tensors of a step into these.

        A step's block tables may have fewer columns than these. The remaining columns keep their old values.
        No sequence of the step is long enough to read them.

        Args:
            step: one tensor for each field, in the order of the fields.

        Raises:
            ValueError: a tensor has another shape or dtype. `copy_` would broadcast or convert it.
        """
        kept = [getattr(self, field.name) for field in fields(self)]
        kept[-1] = kept[-1][:, : step[-1].shape[1]]
        for ours, theirs in zip(kept, step, strict=True):
            if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
                raise ValueError(
                    f"{theirs.dtype} {list(theirs.shape)} in the place of {ours.dtype} {list(ours.shape)}"
                )
            ours.copy_(theirs)

    def metadata(self, longest: int) -> AttentionMetadata:
        """The metadata with which attention is captured.

        The Triton kernels choose their number of programs from the lengths of the sequences
        (`triton_kernels/split_rule.py`). A capture fixes that number for all later steps. So all sequences
        get the greatest length here. In a step with shorter sequences, some programs have nothing to do.

        Args:
            longest: the length of the longest possible sequence, in tokens.
        """
        num_rows = len(self.seq_lens)
        starts = tuple(range(num_rows + 1))
        return AttentionMetadata(
            query_start_loc=torch.tensor(starts, dtype=torch.int32, device=self.seq_lens.device),
            seq_lens=self.seq_lens,
            block_tables=self.block_tables,
            slot_mapping=self.slot_mapping,
            query_start_list=starts,
            seq_lens_list=(longest,) * num_rows,
            num_decodes=num_rows,
        )


def arrays_of(batch: StepBatch, located: Located) -> tuple[IntArray, ...]:
    """A decode step's arrays on the host, one for each field of `DecodeInputs`."""
    return (
        batch.token_ids,
        batch.positions,
        located.slot_mapping,
        located.seq_lens,
        located.block_tables,
    )


def pad_rows(arrays: Sequence[IntArray], num_rows: int) -> list[IntArray]:
    """A step's arrays, each with padding rows added at its end.

    Args:
        arrays: one array of n rows for each field of `DecodeInputs`.
        num_rows: the number of rows in each result; at least n.
    """
    fillers = (0, 0, NO_SLOT, 0, NULL_BLOCK)
    padded: list[IntArray] = []
    for array, filler in zip(arrays, fillers, strict=True):
        whole = np.full((num_rows, *array.shape[1:]), filler, dtype=array.dtype)  # [B] or [B, M]
        whole[: len(array)] = array
        padded.append(whole)
    return padded
