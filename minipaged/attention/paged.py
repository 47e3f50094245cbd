"""PagedLayout: keys and values are written by slot mapping, and read through block tables."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from minipaged.attention.metadata import AttentionFn, AttentionMetadata
from minipaged.kv.block_table import PadBlockTables, SlotMapping, pad_block_tables
from minipaged.kv.cache import KVCache, WriteKV
from minipaged.model.decoder import AttendFn
from minipaged.step_batch import StepBatch


class PagedLayout:
    """An `AttentionLayout` of blocks.

    Args:
        cache: the blocks' tensors.
        attention: the attention backend.
        write_kv: stores keys and values by slot.
        slot_mapping: positions to slots.
        scale: multiplies the scores.
        pad_tables: the block tables of a step as one array.
    """

    keeps_kv = True

    def __init__(
        self,
        cache: KVCache,
        *,
        attention: AttentionFn,
        write_kv: WriteKV,
        slot_mapping: SlotMapping,
        scale: float,
        pad_tables: PadBlockTables = pad_block_tables,
    ) -> None:
        self._cache = cache
        self._attention = attention
        self._write_kv = write_kv
        self._slot_mapping = slot_mapping
        self._scale = scale
        self._pad_tables = pad_tables

    def attend(self, batch: StepBatch) -> AttendFn:
        cache = self._cache
        device = cache.data.device
        metadata = build_metadata(batch, cache.block_size, self._slot_mapping, device, self._pad_tables)

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            kv_layer = cache.layers[layer]
            self._write_kv(kv_layer, key, value, metadata.slot_mapping)
            return self._attention(query, kv_layer, metadata, self._scale)

        return attend


def build_metadata(
    batch: StepBatch,
    block_size: int,
    slot_mapping: SlotMapping,
    device: torch.device,
    pad_tables: PadBlockTables = pad_block_tables,
) -> AttentionMetadata:
    """Where a step's sequences are in the cache."""
    tables = [item.seq.block_table.ids for item in batch.items]
    lengths = np.array([end for _, end in batch.spans], dtype=np.int32)  # [S]
    slots = np.concatenate(  # [T]
        [slot_mapping(table, *span, block_size) for table, span in zip(tables, batch.spans, strict=True)]
    )
    return AttentionMetadata(
        query_start_loc=torch.from_numpy(batch.query_starts).to(device),
        seq_lens=torch.from_numpy(lengths).to(device),
        block_tables=torch.from_numpy(pad_tables(tables)).to(device),
        slot_mapping=torch.from_numpy(slots).to(device),
        query_start_list=tuple(batch.query_starts.tolist()),
        seq_lens_list=tuple(lengths.tolist()),
        num_decodes=sum(item.num_tokens == 1 for item in batch.items),
    )
