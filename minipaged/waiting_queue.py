"""The waiting requests, most urgent first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from minipaged.config import SchedulingPolicy
from minipaged.request import Request


class WaitingQueue:
    """A priority queue of requests, from which any request may also be removed.

    Under `fcfs` the order is that of arrival. A preempted request needs no special place: it was
    admitted, so it arrived before everything that still waits, and is at the front again. Under
    `priority` the order is (priority, arrival), so that it is stable within a level.
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._policy = policy
        self._heap: list[tuple[int, int]] = []  # (level, arrival)
        self._members: dict[int, Request] = {}  # arrival -> request, without the removed ones

    def push(self, request: Request) -> None:
        heapq.heappush(self._heap, self._key(request))
        self._members[request.arrival] = request

    def peek(self) -> Request:
        """The most urgent request.

        Raises:
            IndexError: nothing waits.
        """
        # A removed request stays in the heap until it comes to the top.
        while self._heap and self._heap[0][1] not in self._members:
            heapq.heappop(self._heap)
        return self._members[self._heap[0][1]]

    def pop(self) -> Request:
        """Take out the most urgent request.

        Raises:
            IndexError: nothing waits.
        """
        request = self.peek()
        heapq.heappop(self._heap)
        del self._members[request.arrival]
        return request

    def remove(self, request: Request) -> None:
        """Take out any request; one that is not there is ignored."""
        self._members.pop(request.arrival, None)
        # Keep the removed ones a minority, so that they cannot pile up.
        if len(self._heap) > 2 * len(self._members) + 64:
            self._heap = [entry for entry in self._heap if entry[1] in self._members]
            heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Request]:
        return iter(sorted(self._members.values(), key=self._key))

    def _key(self, request: Request) -> tuple[int, int]:
        return (request.priority if self._policy == "priority" else 0, request.arrival)
