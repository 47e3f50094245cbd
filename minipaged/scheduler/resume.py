"""How a sample whose request was preempted comes back, so that it shares blocks as before.

A preempted request with several samples is admitted with the first of them alone, and that one is
computed like any prompt. The others come back one by one: each waits until a sibling has computed the
tokens that both have in common, then forks from it, and computes the rest.
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
    """How a sample comes back.

    Args:
        request: a running request that was preempted.
        seq: one of its samples, without computed tokens.
        scheduled: what this step computes so far.

    Returns:
        The sibling to fork from; `"alone"` if all siblings have finished, so that it begins anew;
        `"later"` if it cannot come back in this step.
    """
    closest = request.closest_sibling(seq)
    if closest is None:
        return "alone"
    # The last token is computed in any case: its logits are needed.
    num_shared = min(common_prefix(closest, seq), seq.num_tokens - 1)
    if closest.num_computed_tokens < num_shared:
        return "later"
    if any(item.seq is closest and item.copies for item in scheduled):
        # The sibling's last block is copied in this very step, and a copy of a copy would be
        # taken too early: all sources are read before any target is written.
        return "later"
    return Resumption(closest, num_shared)
