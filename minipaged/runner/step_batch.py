"""StepBatch: the tokens of one step, one sequence after the other, without padding. On the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from minipaged.scheduler.scheduler_output import ScheduledSequence


@dataclass(frozen=True)
class StepBatch:
    """The input of one forward pass over T tokens of S sequences.

    Attributes:
        items: the S scheduled sequences, in the order of their tokens: decodes first.
        token_ids: int64 `[T]`.
        positions: int64 `[T]`, each token's position in its own sequence.
        spans: for each sequence, the first position computed, and one past the last.
        query_start_loc: int32 `[S + 1]`, begins with 0 and ends with T: the tokens of sequence s are rows
            `query_start_loc[s] : query_start_loc[s + 1]`.
    """

    items: list[ScheduledSequence]
    token_ids: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    spans: list[tuple[int, int]]
    query_start_loc: npt.NDArray[np.int32]

    @cached_property
    def rows(self) -> list[slice]:
        """The rows of each sequence."""
        return [slice(*each) for each in pairwise(self.query_start_loc.tolist())]


def build_step_batch(scheduled: Sequence[ScheduledSequence], *, from_start: bool = False) -> StepBatch:
    """Lay a step's sequences one after the other.

    Args:
        scheduled: what the step computes.
        from_start: compute each sequence from its first token on, also those that were computed before.
            For an engine that keeps no keys and values.
    """
    items = sorted(scheduled, key=lambda item: item.num_tokens > 1)  # stable: decodes first
    spans = [
        (0 if from_start else i.seq.num_computed_tokens, i.seq.num_computed_tokens + i.num_tokens)
        for i in items
    ]
    token_ids: list[int] = []
    for item, (start, end) in zip(items, spans, strict=True):
        token_ids += item.seq.token_ids[start:end]
    starts = np.cumsum([0] + [end - start for start, end in spans], dtype=np.int32)  # [S + 1]
    positions = np.concatenate([np.arange(*span, dtype=np.int64) for span in spans])  # [T]
    return StepBatch(
        items=items,
        token_ids=np.array(token_ids, dtype=np.int64),
        positions=positions,
        spans=spans,
        query_start_loc=starts,
    )
