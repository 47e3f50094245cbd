"""Counting, after each step, the blocks that it copied and those that are held."""

from __future__ import annotations

from collections.abc import Iterable

from minipaged.kv.block_usage import BlockUsage
from minipaged.request import Request
from minipaged.scheduler.scheduler_output import ScheduledSequence


def count_step(
    total: BlockUsage, scheduled: Iterable[ScheduledSequence], running: Iterable[Request], num_in_use: int
) -> None:
    """Add one step to the counts of each running request, and to those of the whole engine.

    Args:
        total: the engine's counts.
        scheduled: what the step computed; its copies are done.
        running: the requests that hold blocks.
        num_in_use: blocks of the pool in use; what requests share counts once.
    """
    for item in scheduled:
        item.request.block_usage.num_copied_blocks += len(item.copies)
        total.num_copied_blocks += len(item.copies)
    num_logical = 0
    for request in running:
        num_logical += request.block_usage.add_step([seq.block_table for seq in request.sequences])
    total.add_counts(num_logical, num_in_use)
