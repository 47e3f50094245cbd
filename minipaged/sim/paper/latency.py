"""The rate at which a system's latency reaches a limit: what the paper reads from its curves."""

from __future__ import annotations

import math

from minipaged.sim.lengths import LengthDistribution
from minipaged.sim.paper.setting import PaperModel, Setting

_SHARES = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.3, 1.6, 2.0)
"""Rates that are tried, as shares of the rate with a full queue."""


def rate_at_latency(
    setting: Setting, system: str, model: PaperModel, lengths: LengthDistribution, limit: float
) -> float:
    """The arrival rate at which the latency per output token reaches a limit.

    Between two rates that were tried, the logarithm of the latency is assumed to be linear in the rate. A
    rate above that of the full queue is possible only because the number of requests is finite.

    Args:
        setting: how it is simulated.
        system, model, lengths: what is simulated.
        limit: seconds per output token, on average over the requests.

    Returns:
        Requests per second; the largest rate that was tried if no latency reached the limit.
    """
    full = setting.full(system, model, setting.drawn(lengths)).requests_per_second
    before, latency_before = 0.0, 0.0
    for share in _SHARES:
        rate = share * full
        latency = setting.at_rate(system, model, lengths, rate).normalized_latency
        if latency > limit:
            if before == 0:
                return rate * limit / latency
            part = math.log(limit / latency_before) / math.log(latency / latency_before)
            return before + part * (rate - before)
        before, latency_before = rate, latency
    return before
