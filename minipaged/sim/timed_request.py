"""TimedRequest, a request of a simulation; and streams of requests, which are made one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from minipaged.errors import ConfigError
from minipaged.sim.lengths import LengthDistribution, RequestLengths

_CHUNK = 1024
"""Lengths and gaps are drawn in chunks of this size, so that a stream of any length needs little memory."""


@dataclass(frozen=True)
class TimedRequest:
    """One request: when it arrives, and how long it is.

    Attributes:
        arrival: seconds since the beginning of the simulation.
        num_prompt_tokens: tokens of its prompt, with a shared prefix.
        num_output_tokens: tokens that each of its samples generates.
        num_samples: samples of the prompt.
        num_prefix_tokens: leading tokens of the prompt that it shares with other requests.
        prefix: the number of the shared prefix that it has.

    Raises:
        ConfigError: a number is out of its range.
    """

    arrival: float
    num_prompt_tokens: int
    num_output_tokens: int
    num_samples: int = 1
    num_prefix_tokens: int = 0
    prefix: int = 0

    def __post_init__(self) -> None:
        if self.arrival < 0 or min(self.num_prompt_tokens, self.num_output_tokens, self.num_samples) < 1:
            raise ConfigError(
                "a request arrives at 0 s or later, and has at least 1 prompt token, 1 output token and "
                f"1 sample: {self}"
            )
        if not 0 <= self.num_prefix_tokens < self.num_prompt_tokens:
            raise ConfigError(f"the shared prefix must be shorter than the prompt: {self}")


def poisson(rate: float, rng: np.random.Generator) -> Iterator[float]:
    """Arrival times of independent users, in seconds: the gaps are exponential, of mean 1 / `rate`.

    Raises:
        ConfigError: the rate is not positive.
    """
    return bursty(rate, 1.0, rng)


def bursty(rate: float, variation: float, rng: np.random.Generator) -> Iterator[float]:
    """Arrival times in bursts: the gaps have a gamma distribution of mean 1 / `rate`.

    Args:
        rate: arrivals per second, on average.
        variation: standard deviation of the gaps, divided by their mean. 1 is a Poisson process. With 0 the
            gaps are all equal, and with 4 most requests come in bursts.
        rng: the random generator.

    Raises:
        ConfigError: the rate is not positive, or the variation is negative.
    """
    if rate <= 0 or variation < 0:
        raise ConfigError(f"arrivals need a rate above 0 and a variation of at least 0: {rate}, {variation}")
    now = 0.0
    while True:
        if variation == 0:
            gaps = [1 / rate] * _CHUNK
        else:
            gaps = rng.gamma(variation**-2, variation**2 / rate, _CHUNK).tolist()
        for gap in gaps:
            now += gap
            yield now


def all_at_once() -> Iterator[float]:
    """Every request arrives at 0 s: a queue that is never empty."""
    while True:
        yield 0.0


def stream(
    lengths: LengthDistribution,
    arrivals: Iterator[float],
    rng: np.random.Generator,
    *,
    num_requests: int | None = None,
    num_samples: int = 1,
    num_prefix_tokens: int = 0,
    num_prefixes: int = 1,
) -> Iterator[TimedRequest]:
    """Requests whose lengths are drawn from a distribution.

    Args:
        lengths: the distribution.
        arrivals: the arrival times.
        rng: the random generator of the lengths. It may be the generator of `arrivals` as well. Then times
            and lengths are still independent, but changing the number of requests changes both.
        num_requests: how many; `None` for a stream without an end.
        num_samples: samples of each request.
        num_prefix_tokens: tokens that are put before each prompt, and shared.
        num_prefixes: how many different prefixes there are. The requests use them in turn.
    """
    if num_prefixes < 1:
        raise ConfigError(f"there must be at least 1 prefix, not {num_prefixes}")
    pairs = zip(arrivals, _lengths(lengths, rng, num_prefix_tokens), strict=False)
    for number, (arrival, each) in enumerate(islice(pairs, num_requests)):
        yield TimedRequest(
            arrival,
            each.num_prompt_tokens,
            each.num_output_tokens,
            num_samples,
            num_prefix_tokens,
            number % num_prefixes,
        )


def _lengths(
    lengths: LengthDistribution, rng: np.random.Generator, num_prefix_tokens: int
) -> Iterator[RequestLengths]:
    while True:
        yield from lengths.draw(_CHUNK, rng, num_prefix_tokens)
