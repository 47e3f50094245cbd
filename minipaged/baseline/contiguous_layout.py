"""ContiguousLayout: each sequence's keys and values are contiguous in memory, and are read in place.

It needs no block table and no gathering: a sequence's keys are a slice of the cache (paper, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from minipaged.baseline.attend_one import AttendOneFn
from minipaged.baseline.region_slots import ReadRegion, WriteRegion
from minipaged.errors import InvariantError
from minipaged.kv.cache import KVCache
from minipaged.model.decoder import AttendFn
from minipaged.request import Sequence as TokenSequence
from minipaged.runner.step_batch import StepBatch
from minipaged.transfer import IntArray


class ContiguousLayout:
    """An `AttentionLayout` for a cache that is divided into regions.

    Args:
        cache: the KV cache.
        attend_one: computes attention for one sequence.
        write_region: stores a step's keys and values of one sequence.
        read_region: returns all keys and values of one sequence.
        scale: the factor for the attention scores.
    """

    keeps_kv = True

    def __init__(
        self,
        cache: KVCache,
        *,
        attend_one: AttendOneFn,
        write_region: WriteRegion,
        read_region: ReadRegion,
        scale: float,
    ) -> None:
        self._layers = list(cache.slots.unbind(0))  # each [2, num_slots, num_kv_heads, head_dim]
        self._attend_one = attend_one
        self._write_region = write_region
        self._read_region = read_region
        self._scale = scale

    def locate(self, batch: StepBatch) -> Sequence[IntArray]:
        return ()

    def attend(self, batch: StepBatch, located: Sequence[Tensor]) -> AttendFn:
        starts = [  # the first slot of each sequence
            _first_slot(item.seq, end) for item, (_, end) in zip(batch.items, batch.spans, strict=True)
        ]

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            slots = self._layers[layer]
            output = query.new_empty(query.shape)  # [T, num_heads, head_dim]
            for rows, start, (position, end) in zip(batch.rows, starts, batch.spans, strict=True):
                self._write_region(slots, start, position, key[rows], value[rows])
                keys, values = self._read_region(slots, start, end)  # [end, num_kv_heads, head_dim] each
                output[rows] = self._attend_one(query[rows], keys, values, self._scale)
            return output

        return attend


def _first_slot(seq: TokenSequence, end: int) -> int:
    if seq.region is None or end > seq.region.num_slots:
        raise InvariantError(f"{seq} has no room for {end} tokens in {seq.region}")
    return seq.region.start
