"""Undoing a step that failed, or that Ctrl-C interrupted at any line."""

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
    """Undo a plan that was not executed.

    The plan entered blocks into the prefix cache before they were computed. These blocks are removed from the
    cache. Every request whose state may be half changed loses its blocks and waits again.

    Args:
        plan: the plan, as far as it was made.
        requests: all unfinished requests.
        queues, manager, swap_space: those of the scheduler.

    Returns:
        How many running requests lost their blocks.
    """
    for request in plan.resumed:
        for seq in request.sequences:
            seq.num_computed_tokens = 0  # its blocks may not be copied back from the CPU yet
    for item in plan.scheduled:
        manager.forget_uncomputed(item.seq)
    # An interrupt may come in the middle of an admission or a preemption, so a request may be in any
    # queue.
    planned = {item.request.request_id for item in plan.scheduled}
    planned |= {request.request_id for request in plan.resumed}
    num_preempted = 0
    for request in requests:
        is_running = request in queues.running
        # A request that is not in the plan keeps its blocks, with two exceptions. If its samples share
        # blocks, one may have been given copies just before it was added to the plan. If a sample was just
        # coming back, it may hold blocks that it has not computed.
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
