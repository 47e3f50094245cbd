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
    """What nine of ten requests must keep, in seconds.

    Attributes:
        time_to_first_token: from arrival to the first token.
        time_per_output_token: between the tokens of a request, after the first one.
    """

    time_to_first_token: float
    time_per_output_token: float

    def are_kept_by(self, result: SimulationResult) -> bool:
        """Whether the 90th percentiles of a run are within the targets."""
        # A run whose requests have one token each has no time between tokens, which is NaN.
        return (
            result.time_to_first_token.p90 <= self.time_to_first_token
            and not result.time_per_output_token.p90 > self.time_per_output_token
        )


def find_knee(
    targets: Targets, highest: float, run: Callable[[float], SimulationResult]
) -> tuple[float, SimulationResult]:
    """Halve the range of rates seven times, and keep the largest rate that kept the targets.

    Args:
        targets: the targets.
        highest: a rate that is too high, such as that with a queue that is never empty.
        run: serves requests at a rate.

    Returns:
        The rate in requests per second, and its run.

    Raises:
        ConfigError: not even a nearly idle replica keeps the targets; the message says what it takes.
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
