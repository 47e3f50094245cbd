"""AttentionLayout: how one step's keys and values are kept, and what its queries read.

There is one for each `kv_layout`, and only here do they differ for the model: `PagedLayout`, and
`ContiguousLayout` and `UncachedLayout` in `baseline/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from minipaged.model.decoder import AttendFn
from minipaged.runner.step_batch import StepBatch
from minipaged.to_device import IntArray


class AttentionLayout(Protocol):
    """What the runner needs of a layout."""

    @property
    def keeps_kv(self) -> bool:
        """Whether keys and values outlive the step that computes them. If not, each step computes its
        sequences from their beginnings."""
        ...

    def locate(self, batch: StepBatch) -> Sequence[IntArray]:
        """What a step's attention has to read on the device: where the sequences lie."""
        ...

    def attend(self, batch: StepBatch, located: Sequence[Tensor]) -> AttendFn:
        """What the decoder calls in each layer of a step: store the new keys and values, then attend.

        Args:
            batch: the step.
            located: what `locate` gave for it, on the device.
        """
        ...
