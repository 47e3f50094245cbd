"""DecodeGraphs: decode steps that are captured when the engine starts, and replayed from then on.

Only pure decode steps are captured: those with one token for each sequence. Their kernel launches depend only
on the number of sequences. That number is rounded up to a bucket, and the additional rows are padding. Any
other step runs eagerly. See vLLM, `v1/worker/gpu/cudagraph_utils.py`
(`ModelCudaGraphManager`).
"""

from __future__ import annotations

from bisect import bisect_left

import torch
from torch import Tensor

from minipaged.attention.paged_layout import PagedLayout
from minipaged.kv.size import blocks_needed
from minipaged.model.decoder import Decoder
from minipaged.runner.capture import Capture, Replay
from minipaged.runner.decode_inputs import DecodeInputs, arrays_of, pad_rows
from minipaged.runner.step_batch import StepBatch
from minipaged.transfer import IntArray, to_device

LARGEST_BUCKET = 512
"""The most sequences of a captured step. In larger steps the time of a launch matters little."""
STEP = 16
"""Above 8, buckets are multiples of this number, so at most 15 rows of a step are padding."""


def decode_buckets(max_num_seqs: int) -> tuple[int, ...]:
    """The sizes of captured steps: 1, 2, 4, 8, multiples of 16 below `max_num_seqs`, and `max_num_seqs`.

    >>> decode_buckets(40)
    (1, 2, 4, 8, 16, 32, 40)

    Args:
        max_num_seqs: the most sequences in one step, at least 1. Above 512, it counts as 512.

    Returns:
        The sizes, in ascending order.
    """
    largest = min(max_num_seqs, LARGEST_BUCKET)
    sizes = {size for size in (1, 2, 4, 8, *range(STEP, largest, STEP)) if size < largest}
    return (*sorted(sizes), largest)


class DecodeGraphs:
    """The captured decode steps of one engine. The constructor captures them, the largest first.

    Args:
        decoder: the model.
        layout: writes and reads its keys and values.
        max_num_seqs: the most sequences in one step.
        max_model_len: the length of the longest sequence, in tokens.
        capture: records a step.
    """

    @torch.inference_mode()
    def __init__(
        self,
        decoder: Decoder,
        layout: PagedLayout,
        *,
        max_num_seqs: int,
        max_model_len: int,
        capture: Capture,
    ) -> None:
        self.buckets = decode_buckets(max_num_seqs)
        self._decoder = decoder
        self._layout = layout
        self._max_model_len = max_model_len
        self._device = decoder.device
        largest = self.buckets[-1]
        max_blocks = blocks_needed(max_model_len, layout.block_size)
        self._inputs = DecodeInputs.of_padding(largest, max_blocks, self._device)
        self._hidden = torch.zeros(  # [B, hidden]
            largest, decoder.config.hidden_size, dtype=decoder.dtype, device=self._device
        )
        self._replays = {bucket: self._captured(bucket, capture) for bucket in reversed(self.buckets)}

    def bucket_of(self, batch: StepBatch) -> int | None:
        """The number of rows to which a step is padded; `None` if it must run eagerly."""
        num_rows = len(batch.items)
        if len(batch.token_ids) != num_rows or num_rows > self.buckets[-1]:
            return None  # a sequence has several tokens, or there are too many sequences
        return self.buckets[bisect_left(self.buckets, num_rows)]

    def run(self, batch: StepBatch, bucket: int, rows: IntArray) -> tuple[Tensor, Tensor]:
        """Compute a step by replaying a captured one; see `DecodeSteps.run`."""
        arrays = arrays_of(batch, self._layout.locate(batch))
        *step, rows_there = to_device([*pad_rows(arrays, bucket), rows], self._device)
        self._inputs.first(bucket).fill(step)
        self._replays[bucket]()
        return self._hidden[:bucket], rows_there

    def _captured(self, bucket: int, capture: Capture) -> Replay:
        inputs, hidden = self._inputs.first(bucket), self._hidden[:bucket]
        attend = self._layout.attend_by(inputs.metadata(self._max_model_len))

        def step() -> None:
            hidden.copy_(self._decoder(inputs.token_ids, inputs.positions, attend))

        return capture(step)
