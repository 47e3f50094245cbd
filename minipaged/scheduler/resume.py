"""How the samples of a preempted request come back, so that they share blocks as before.

When a preempted request with several samples is admitted again, only its first sample starts at once. It is
computed like any prompt. The other samples come back one by one. Each waits until a sibling has computed the
tokens that they have in common, then forks from that sibling and computes its remaining tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from minipaged.request import Request, Sequence, common_prefix
from minipaged.scheduler.scheduler_output import ScheduledSequence


@dataclass(frozen=True)
class Resumption:
    """Fork from `sibling`, and share its first `num_shared` tokens."""

    sibling: Sequence
    num_shared: int


def find_resumption(
    request: Request, seq: Sequence, scheduled: Iterable[ScheduledSequence]
) -> Resumption | Literal["alone", "later"]:
    """Decide how a sample of a preempted request comes back.

    Args:
        request: a running request that was preempted.
        seq: one of its samples, without computed tokens.
        scheduled: the sequences that this step computes, as planned so far.

    Returns:
        The sibling to fork from; `"alone"` if all siblings have finished, so that the sample must begin
        without a fork; `"later"` if it cannot come back in this step.
    """
    closest = request.closest_sibling(seq)
    if closest is None:
        return "alone"
    # The last token must be computed again, since its logits are needed.
    num_shared = min(common_prefix(closest, seq), seq.num_tokens - 1)
    if closest.num_computed_tokens < num_shared:
        return "later"
    if any(item.seq is closest and item.copies for item in scheduled):
        # The sibling's last block is the target of a copy in this step. If this sample also copied that
        # block, it would read old contents: a step reads all sources before it writes any target.
        return "later"
    return Resumption(closest, num_shared)
