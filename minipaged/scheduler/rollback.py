"""Undoing a step that failed, or that Ctrl-C interrupted between any two lines of it."""

from __future__ import annotations

from collections.abc import Collection

from minipaged.kv.manager import KVManager
from minipaged.kv.swap import SwapSpace
from minipaged.request import Request
from minipaged.scheduler.queues import RequestQueues
from minipaged.scheduler.scheduler_output import SchedulerOutput


def rollback(
    plan: SchedulerOutput,
    requests: Collection[Request],
    queues: RequestQueues,
    manager: KVManager,
    swap_space: SwapSpace | None,
) -> int:
    """Take back what a plan promised to the prefix cache, and put every request whose state may be half
    changed back among the waiting ones.

    Args:
        plan: as much of it as there is.
        requests: all unfinished ones.
        queues, manager, swap_space: the scheduler's.

    Returns:
        How many running requests lost their blocks.
    """
    for request in plan.resumed:
        for seq in request.sequences:
            seq.num_computed_tokens = 0  # they may not be back from the CPU yet
    for item in plan.scheduled:
        manager.forget_uncomputed(item.seq)
    # An interrupt may come in the middle of an admission or a preemption, so nothing is assumed about
    # the queue that a request is in.
    planned = {item.request.request_id for item in plan.scheduled}
    planned |= {request.request_id for request in plan.resumed}
    num_preempted = 0
    for request in requests:
        is_running = request in queues.running
        # One that shares blocks with its siblings may have been given copies of them already, in
        # the line before it came into the plan; one that comes back, blocks that are not its own yet.
        is_alone = len(request.unfinished) == 1 and request.unfinished[0].num_computed_tokens > 0
        if is_running and request.request_id not in planned and is_alone:
            continue
        if is_running:
            request.num_preemptions += 1
            num_preempted += 1
        if swap_space is not None:
            swap_space.discard(request)
        queues.remove(request)
        manager.free_request(request)
        queues.wait(request)
    return num_preempted
