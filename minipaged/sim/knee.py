"""The knee of one replica: the largest rate at which it keeps its latency targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minipaged.errors import ConfigError
from minipaged.sim.measures import SimulationResult

_HALVINGS = 7
_SLOWEST = 1 / 64
"""The lowest rate that is tried, as a share of the highest."""


@dataclass(frozen=True)
class Targets:
    """The latencies, in seconds, that nine of ten requests must not exceed.

    Attributes:
        time_to_first_token: the time from arrival to the first token.
        time_per_output_token: the mean time between the tokens of a request, from the first token on.
    """

    time_to_first_token: float
    time_per_output_token: float

    def are_kept_by(self, result: SimulationResult) -> bool:
        """Whether the 90th percentiles of a run are within the targets."""
        # A run whose requests have one token each has no time between tokens, so that latency is NaN.
        return (
            result.time_to_first_token.p90 <= self.time_to_first_token
            and not result.time_per_output_token.p90 > self.time_per_output_token
        )


def find_knee(
    targets: Targets, highest: float, run: Callable[[float], SimulationResult]
) -> tuple[float, SimulationResult]:
    """Find the largest rate that keeps the targets, by halving the range of rates seven times.

    Args:
        targets: the targets.
        highest: a rate that is too high, such as the rate of answers with a queue that is never empty.
        run: serves requests at a rate.

    Returns:
        The rate in requests per second, and the result at that rate.

    Raises:
        ConfigError: not even a nearly idle replica keeps the targets; the message gives its latencies.
    """
    rate = highest * _SLOWEST
    kept = run(rate)
    if not targets.are_kept_by(kept):
        raise ConfigError(
            f"at {rate:.3g} requests a second, one replica takes {kept.time_to_first_token.p90:.3g} s to the "
            f"first token and {kept.time_per_output_token.p90:.3g} s for each other one (p90), so "
            f"no number of replicas keeps targets of {targets.time_to_first_token:g} s and "
            f"{targets.time_per_output_token:g} s: take faster or more devices for each replica"
        )
    low, high = rate, highest
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        result = run(rate)
        if targets.are_kept_by(result):
            low, kept = rate, result
        else:
            high = rate
    return low, kept
