"""The order of requests, and the queue of waiting requests in that order."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from minipaged.choices import SchedulingPolicy
from minipaged.request import Request

Rank = tuple[int, int]
"""A request's place in the order. The lowest rank is admitted first; the highest is preempted first."""


AGEING = 8
"""How long new requests may overtake a long prompt under the policy `shortest`.

After the engine has scheduled `AGEING * n` more tokens, every new request ranks behind a waiting prompt of
n tokens. So no request waits forever.
"""


def rank(request: Request, policy: SchedulingPolicy) -> Rank:
    """A request's rank. It never changes, so the first request in the order always makes progress.

    - `fcfs`: by arrival.
    - `priority`: by priority, a smaller number first; by arrival if priorities are equal.
    - `shortest`: by the length of the prompt, minus a credit for the time waited. All credits grow
      at the same speed, so adding the time of arrival instead gives the same order.
    """
    match policy:
        case "priority":
            return (request.priority, request.arrival)
        case "shortest":
            return (AGEING * len(request.prompt_token_ids) + request.arrival_clock, request.arrival)
        case "fcfs":
            return (0, request.arrival)


class WaitingQueue:
    """The waiting requests, sorted by rank.

    A preempted request goes back to its place by rank. Under `fcfs`, that is the front of the queue:
    the request was admitted before the requests that still wait, so it arrived before them.
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._policy: SchedulingPolicy = policy
        self._requests: list[Request] = []

    def push(self, request: Request) -> None:
        bisect.insort(self._requests, request, key=self.rank_of)

    def peek(self) -> Request:
        """The first request.

        Raises:
            IndexError: the queue is empty.
        """
        return self._requests[0]

    def pop(self) -> Request:
        """Take out the first request.

        Raises:
            IndexError: the queue is empty.
        """
        return self._requests.pop(0)

    def remove(self, request: Request) -> None:
        """Take out this request, if it is in the queue."""
        place = bisect.bisect_left(self._requests, self.rank_of(request), key=self.rank_of)
        if place < len(self._requests) and self._requests[place] is request:
            del self._requests[place]

    def rank_of(self, request: Request) -> Rank:
        """A request's place in this queue."""
        return rank(request, self._policy)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._requests))
