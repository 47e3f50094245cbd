"""UncachedLayout: no KV cache. Each step computes whole sequences, so it has all their keys and values."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from minipaged.baseline.attend_one import AttendOneFn
from minipaged.model.decoder import AttendFn
from minipaged.runner.step_batch import StepBatch
from minipaged.transfer import IntArray


class UncachedLayout:
    """An `AttentionLayout` without memory: plain causal attention over the step's own tokens.

    Args:
        attend_one: computes attention for one sequence.
        scale: the factor for the attention scores.
    """

    keeps_kv = False

    def __init__(self, attend_one: AttendOneFn, scale: float) -> None:
        self._attend_one = attend_one
        self._scale = scale

    def locate(self, batch: StepBatch) -> Sequence[IntArray]:
        return ()

    def attend(self, batch: StepBatch, located: Sequence[Tensor]) -> AttendFn:
        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            output = query.new_empty(query.shape)  # [T, num_heads, head_dim]
            for rows in batch.rows:
                output[rows] = self._attend_one(query[rows], key[rows], value[rows], self._scale)
            return output

        return attend
