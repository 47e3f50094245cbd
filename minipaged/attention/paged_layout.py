"""PagedLayout: keys and values are written by slot mapping, and read through block tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from minipaged.attention.metadata import AttentionFn, AttentionMetadata
from minipaged.kv import block_table
from minipaged.kv.block_table import PadBlockTables, SlotMapping, decode_slots, pad_block_tables
from minipaged.kv.cache import KVCache, WriteKV
from minipaged.model.decoder import AttendFn
from minipaged.runner.step_batch import StepBatch


class Located(NamedTuple):
    """Where a step's sequences are in the cache. `AttentionMetadata` documents the fields."""

    query_start_loc: npt.NDArray[np.int32]
    seq_lens: npt.NDArray[np.int32]
    block_tables: npt.NDArray[np.int32]
    slot_mapping: npt.NDArray[np.int64]


class PagedLayout:
    """An `AttentionLayout` for a cache of blocks.

    Args:
        cache: the KV cache.
        attention: the attention backend.
        write_kv: stores keys and values in their slots.
        slot_mapping: translates positions into slots.
        scale: the factor for the attention scores.
        pad_tables: puts the block tables of a step into one array.
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
        self.cache = cache
        self.scale = scale
        self._attention = attention
        self._write_kv = write_kv
        self._slot_mapping = slot_mapping
        self._pad_tables = pad_tables
        # For decode steps, `decode_slots` is a faster version of the engine's own functions.
        self._is_own = slot_mapping is block_table.slot_mapping and pad_tables is pad_block_tables

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self.cache.block_size

    def locate(self, batch: StepBatch) -> Located:
        tables = [item.seq.block_table.ids for item in batch.items]
        block_tables = self._pad_tables(tables)  # [S, M]
        if batch.is_decode and self._is_own:
            slots = decode_slots(block_tables, batch.positions, self.block_size)  # [S]
        else:
            slots = np.concatenate(  # [T]
                [
                    self._slot_mapping(table, *span, self.block_size)
                    for table, span in zip(tables, batch.spans, strict=True)
                ]
            )
        return Located(
            query_start_loc=batch.query_start_loc,
            seq_lens=np.array([end for _, end in batch.spans], dtype=np.int32),
            block_tables=block_tables,
            slot_mapping=slots,
        )

    def attend(self, batch: StepBatch, located: Sequence[Tensor]) -> AttendFn:
        return self.attend_by(metadata_of(batch, located))

    def attend_by(self, metadata: AttentionMetadata) -> AttendFn:
        """`attend`, for a caller that already has the step's metadata."""

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            kv_layer = self.cache.layers[layer]
            self._write_kv(kv_layer, key, value, metadata.slot_mapping)
            return self._attention(query, kv_layer, metadata, self.scale)

        return attend


def metadata_of(batch: StepBatch, located: Sequence[Tensor]) -> AttentionMetadata:
    """A step's metadata, made from the tensors of its `Located`."""
    query_start_loc, seq_lens, block_tables, slot_mapping = located
    return AttentionMetadata(
        query_start_loc=query_start_loc,
        seq_lens=seq_lens,
        block_tables=block_tables,
        slot_mapping=slot_mapping,
        query_start_list=tuple(batch.query_start_loc.tolist()),
        seq_lens_list=tuple(end for _, end in batch.spans),
        num_decodes=sum(item.num_tokens == 1 for item in batch.items),
    )
