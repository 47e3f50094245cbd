"""DecodeGraphs: decode steps that are captured when the engine starts, and replayed from then on.

As in vLLM (vllm/v1/worker/gpu/cudagraph_utils.py, `ModelCudaGraphManager`), for pure decode steps
alone: one token for each sequence, so that only the number of sequences matters for what is launched.
That number is rounded up to a bucket, and the rows behind are padding. Any other step runs eagerly.
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
"""With more sequences each kernel has more to do, and its launch matters less."""
STEP = 16
"""From here on a bucket every 16: no more than 15 rows of a step are padding."""


def decode_buckets(max_num_seqs: int) -> tuple[int, ...]:
    """1, 2, 4, 8, then each multiple of 16, up to `max_num_seqs`, which is one too.

    >>> decode_buckets(40)
    (1, 2, 4, 8, 16, 32, 40)

    Args:
        max_num_seqs: most sequences in one step, at least 1.

    Returns:
        In ascending order; none is above 512.
    """
    largest = min(max_num_seqs, LARGEST_BUCKET)
    sizes = {size for size in (1, 2, 4, 8, *range(STEP, largest, STEP)) if size < largest}
    return (*sorted(sizes), largest)


class DecodeGraphs:
    """The captured steps of one engine. Making it captures them, the largest first.

    Args:
        decoder: the model.
        layout: where its keys and values are.
        max_num_seqs: most sequences in one step.
        max_model_len: tokens of the longest sequence.
        capture: what records a step.
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
        """The rows that a step is padded to."""
        num_rows = len(batch.items)
        if len(batch.token_ids) != num_rows or num_rows > self.buckets[-1]:
            return None  # not one token for each sequence, or too many
        return self.buckets[bisect_left(self.buckets, num_rows)]

    def run(self, batch: StepBatch, bucket: int, rows: IntArray) -> tuple[Tensor, Tensor]:
        """Compute a step by a captured one; see `DecodeSteps`."""
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
