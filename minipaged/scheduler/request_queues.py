"""RequestQueues: where each request is, and how it gets from one place to another.

waiting --admitted--> running --retired-->
   ^                   |  ^
   |     preempted     |  |
   +---(recompute)-----+  |
                       |  |
         (swap)     swapped
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from minipaged.config import SchedulingPolicy
from minipaged.errors import InvariantError
from minipaged.kv.cache import BlockCopy
from minipaged.kv.manager import KVManager
from minipaged.kv.swap import BlockSwap, SwapSpace
from minipaged.request import Request, RequestStatus
from minipaged.scheduler.policy import WaitingQueue
from minipaged.scheduler.scheduler_output import SchedulerOutput


class RequestQueues:
    """The queues of a scheduler.

    Args:
        manager: where memory comes from.
        policy: the order of requests, see `minipaged/scheduler/policy.py`.
        swap_space: where preempted requests' blocks go; `None`: they are computed again.

    Attributes:
        waiting: new requests, and preempted ones whose tokens will be computed again.
        swapped: preempted ones whose blocks are in CPU memory.
        running: the others, in the order of their admission.
        pending_swap_outs: what preemptions have swapped out, until the next step copies it.
    """

    def __init__(self, manager: KVManager, policy: SchedulingPolicy, swap_space: SwapSpace | None) -> None:
        self.waiting = WaitingQueue(policy)
        self.swapped = WaitingQueue(policy)
        self.running: list[Request] = []
        self.pending_swap_outs: list[BlockSwap] = []
        self.num_preemptions = 0
        self.num_swapped_blocks = 0
        self._manager = manager
        self._swap_space = swap_space

    def retire(self, request: Request) -> None:
        """Take a request out, wherever it is, and free all that it holds."""
        self._manager.free_request(request)
        if self._swap_space is not None:
            self._swap_space.discard(request)
        if request.status is RequestStatus.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
            self.swapped.remove(request)
        request.status = RequestStatus.FINISHED

    def preempt(self, request: Request, undone: Sequence[BlockCopy] = ()) -> None:
        """Take a running request's blocks away, and put it back into a queue.

        Its blocks are swapped out, if there is room for them; else its tokens will be computed again
        (recomputation). All of its sequences lose all of their blocks: with one block missing, the
        others are of no use (the paper's all-or-nothing rule). With prefix caching the full ones
        stay findable, so that most of the "recomputation" is a prefix hit if it comes back soon.

        Args:
            request: one of `running`.
            undone: block copies that were planned for it in this step, and will not be done.
        """
        self.running.remove(request)
        request.num_preemptions += 1
        self.num_preemptions += 1
        if not self._swap_out(request, undone):
            self._recompute(request)

    def _swap_out(self, request: Request, undone: Sequence[BlockCopy]) -> bool:
        if self._swap_space is None:
            return False
        if any(seq.num_computed_tokens == 0 for seq in request.unfinished):
            # It is being computed again, one sequence after the other. What is there already may be
            # beams that wait for the others; brought back alone, they would leave nothing to compute.
            return False
        swaps = self._swap_space.swap_out(request, {copy.target: copy.source for copy in undone})
        if swaps is None:
            return False
        self.pending_swap_outs += swaps
        self.num_swapped_blocks += len(swaps)
        request.status = RequestStatus.SWAPPED
        self.swapped.push(request)
        return True

    def _recompute(self, request: Request) -> None:
        self._manager.free_request(request)
        request.status = RequestStatus.PREEMPTED
        self.waiting.push(request)

    def rollback(self, output: SchedulerOutput, requests: Collection[Request]) -> None:
        """Undo a step that failed: what it promised to the prefix cache was never computed.

        Args:
            output: as much of the plan as there is.
            requests: all unfinished ones.
        """
        for request in output.resumed:
            for seq in request.sequences:
                seq.num_computed_tokens = 0  # they may not be back from the CPU yet
        for item in output.scheduled:
            self._manager.forget_uncomputed(item.seq)
        # An interrupt may come between any two lines of an admission or a preemption, so nothing is
        # assumed about which queue a request is in.
        planned = {item.request.request_id for item in output.scheduled}
        planned |= {request.request_id for request in output.resumed}
        for request in requests:
            is_running = request in self.running
            # One that shares blocks with its siblings may have been given copies of them already, in
            # the line before it came into the plan; one that comes back, blocks that are not its own yet.
            is_alone = len(request.unfinished) == 1 and request.unfinished[0].num_computed_tokens > 0
            if is_running and request.request_id not in planned and is_alone:
                continue
            if is_running:
                self.running.remove(request)
                request.num_preemptions += 1
                self.num_preemptions += 1
            if self._swap_space is not None:
                self._swap_space.discard(request)
            self.waiting.remove(request)
            self.swapped.remove(request)
            self._recompute(request)
        self.pending_swap_outs.clear()

    def check_invariants(self, requests: Collection[Request]) -> None:
        """Compare the queues with all unfinished requests.

        Raises:
            InvariantError: a request in the wrong queue or in none, or a waiting one with memory.
        """
        running = {id(request) for request in self.running}
        waiting = {id(request) for request in [*self.waiting, *self.swapped]}
        for request in requests:
            is_running = request.status is RequestStatus.RUNNING
            if (id(request) in running, id(request) in waiting) != (is_running, not is_running):
                raise InvariantError(f"request {request.request_id!r} is {request.status} in the wrong queue")
            if not is_running and any(seq.holds_memory for seq in request.sequences):
                raise InvariantError(f"request {request.request_id!r} waits, but holds memory")
        if self._swap_space is not None:
            self._swap_space.check_invariants(requests)
