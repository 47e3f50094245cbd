"""The order of requests, and those that wait, in that order."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from minipaged.choices import SchedulingPolicy
from minipaged.request import Request

Rank = tuple[int, int]
"""A request's place in the order: the lowest is admitted first, the highest is preempted first."""


AGEING = 8
"""Under `shortest`, a prompt of n tokens is overtaken at most until the engine has scheduled
`AGEING * n` tokens more: then every newcomer ranks behind it, so none starves."""


def rank(request: Request, policy: SchedulingPolicy) -> Rank:
    """A request's place, which never changes, so that the first in the order always gets on.

    - `fcfs`: by arrival.
    - `priority`: by priority, a smaller number first; by arrival within a level.
    - `shortest`: by the length of the prompt, less what the request has waited. Everybody ages at
      the same speed, so it is enough to count how late each one came.
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

    A preempted request needs no special place: under `fcfs` it arrived before everything that still
    waits, since it was admitted once, and so it is at the front again.
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._policy: SchedulingPolicy = policy
        self._requests: list[Request] = []

    def push(self, request: Request) -> None:
        bisect.insort(self._requests, request, key=self._rank)

    def peek(self) -> Request:
        """The first request.

        Raises:
            IndexError: nothing waits.
        """
        return self._requests[0]

    def pop(self) -> Request:
        """Take out the first request.

        Raises:
            IndexError: nothing waits.
        """
        return self._requests.pop(0)

    def remove(self, request: Request) -> None:
        """Take out any request; one that is not there is ignored."""
        place = bisect.bisect_left(self._requests, self._rank(request), key=self._rank)
        if place < len(self._requests) and self._requests[place] is request:
            del self._requests[place]

    def _rank(self, request: Request) -> Rank:
        return rank(request, self._policy)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._requests))
