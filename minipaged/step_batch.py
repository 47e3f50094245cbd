"""StepBatch: the tensors of one step, packed without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from minipaged.attention.metadata import AttentionMetadata
from minipaged.kv.block_pool import NULL_BLOCK
from minipaged.kv.block_table import SlotMapping
from minipaged.scheduler import ScheduledSequence


@dataclass(frozen=True)
class StepBatch:
    """The input of one forward pass over T tokens of S sequences.

    Attributes:
        items: the S scheduled sequences, in the order of their tokens: decodes first.
        token_ids: int64 `[T]`.
        positions: int64 `[T]`, each token's position in its own sequence.
        metadata: the layout for attention.
    """

    items: list[ScheduledSequence]
    token_ids: Tensor
    positions: Tensor
    metadata: AttentionMetadata


def build_step_batch(
    scheduled: Sequence[ScheduledSequence],
    *,
    block_size: int,
    slot_mapping: SlotMapping,
    device: torch.device,
) -> StepBatch:
    """Pack a step's sequences."""
    items = sorted(scheduled, key=lambda item: item.num_tokens > 1)  # stable: decodes first
    spans = [(i.seq.num_computed_tokens, i.seq.num_computed_tokens + i.num_tokens) for i in items]
    token_ids: list[int] = []
    for item, (start, end) in zip(items, spans, strict=True):
        token_ids += item.seq.token_ids[start:end]
    tables = [item.seq.block_table.ids for item in items]
    starts = np.cumsum([0] + [end - start for start, end in spans], dtype=np.int32)  # [S + 1]
    lengths = np.array([end for _, end in spans], dtype=np.int32)  # [S]
    positions = np.concatenate([np.arange(*span, dtype=np.int64) for span in spans])  # [T]
    slots = np.concatenate(  # [T]
        [slot_mapping(table, *span, block_size) for table, span in zip(tables, spans, strict=True)]
    )
    padded = np.full((len(items), max(map(len, tables))), NULL_BLOCK, dtype=np.int32)  # [S, M]
    for row, table in zip(padded, tables, strict=True):
        row[: len(table)] = table
    metadata = AttentionMetadata(
        query_start_loc=torch.from_numpy(starts).to(device),
        seq_lens=torch.from_numpy(lengths).to(device),
        block_tables=torch.from_numpy(padded).to(device),
        slot_mapping=torch.from_numpy(slots).to(device),
        query_start_list=tuple(starts.tolist()),
        seq_lens_list=tuple(lengths.tolist()),
        num_decodes=sum(item.num_tokens == 1 for item in items),
    )
    return StepBatch(
        items=items,
        token_ids=torch.tensor(token_ids, dtype=torch.int64, device=device),
        positions=torch.from_numpy(positions).to(device),
        metadata=metadata,
    )
