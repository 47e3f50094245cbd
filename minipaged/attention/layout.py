"""AttentionLayout: how a step's keys and values are stored, and how its queries read them.

Each `kv_layout` setting has its own class: `PagedLayout` in this package, `ContiguousLayout` and
`UncachedLayout` in `minipaged/baseline/`. The rest of the forward pass is the same for all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from minipaged.model.decoder import AttendFn
from minipaged.runner.step_batch import StepBatch
from minipaged.transfer import IntArray


class AttentionLayout(Protocol):
    """The methods of a layout that the runner calls."""

    @property
    def keeps_kv(self) -> bool:
        """Whether keys and values are kept after the step that computes them.

        If not, each step computes its sequences again from their first tokens.
        """
        ...

    def locate(self, batch: StepBatch) -> Sequence[IntArray]:
        """The arrays that tell a step's attention where its sequences are in the cache.

        The runner copies them to the device.
        """
        ...

    def attend(self, batch: StepBatch, located: Sequence[Tensor]) -> AttendFn:
        """The function that the decoder calls in each layer of a step.

        It stores the new keys and values, and then computes attention.

        Args:
            batch: the step.
            located: the arrays that `locate` returned for the step, on the device.
        """
        ...
