"""RequestQueues: where each unfinished request is.

waiting --admitted--> running --retired-->
   ^                   |  ^
   |     preempted     |  |
   +---(recompute)-----+  |
                       |  |
         (swap)     swapped
"""

from __future__ import annotations

from collections.abc import Collection

from minipaged.choices import SchedulingPolicy
from minipaged.errors import InvariantError
from minipaged.request import Request, RequestStatus
from minipaged.scheduler.policy import WaitingQueue, rank


class RequestQueues:
    """The queues of a scheduler. A request's `status` says which queue it is in.

    Args:
        policy: the order of requests, see `scheduler/policy.py`.

    Attributes:
        waiting: new requests, and preempted requests whose tokens will be computed again.
        swapped: preempted requests whose blocks are in CPU memory.
        running: the running requests, in the order of their admission.
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        self.waiting = WaitingQueue(policy)
        self.swapped = WaitingQueue(policy)
        self.running: list[Request] = []
        self._policy: SchedulingPolicy = policy

    def wait(self, request: Request) -> None:
        """Put a preempted request, which is in no queue, into `waiting`."""
        request.status = RequestStatus.PREEMPTED
        self.waiting.push(request)

    def swap(self, request: Request) -> None:
        """Put a preempted request, which is in no queue, into `swapped`."""
        request.status = RequestStatus.SWAPPED
        self.swapped.push(request)

    def start_running(self, queue: WaitingQueue) -> None:
        """Move the first request of a queue to `running`."""
        request = queue.pop()
        self.running.append(request)
        request.status = RequestStatus.RUNNING

    def victim(self) -> Request:
        """The running request to preempt next: the last one in the policy's order."""
        return max(self.running, key=lambda request: rank(request, self._policy))

    def remove(self, request: Request) -> None:
        """Take a request out of its queue.

        All queues are searched, since an interrupt may have left the request in several, or in none.
        """
        if request in self.running:
            self.running.remove(request)
        self.waiting.remove(request)
        self.swapped.remove(request)

    def check_invariants(self, requests: Collection[Request]) -> None:
        """Compare the queues with all unfinished requests.

        Raises:
            InvariantError: a request is in the wrong queue or in none, or it waits but holds memory.
        """
        running = {id(request) for request in self.running}
        waiting = {id(request) for request in [*self.waiting, *self.swapped]}
        for request in requests:
            is_running = request.status is RequestStatus.RUNNING
            if (id(request) in running, id(request) in waiting) != (is_running, not is_running):
                raise InvariantError(f"request {request.request_id!r} is {request.status} in the wrong queue")
            if not is_running and any(seq.holds_memory for seq in request.sequences):
                raise InvariantError(f"request {request.request_id!r} waits, but holds memory")
