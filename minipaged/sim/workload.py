"""Workload: requests to serve. Every engine that is measured gets the same requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minipaged.errors import ConfigError
from minipaged.sim.lengths import LengthDistribution, RequestLengths


@dataclass(frozen=True)
class WorkloadRequest:
    """One request.

    Attributes:
        prompt_token_ids: the prompt.
        max_tokens: number of tokens to generate. No output is shorter.
    """

    prompt_token_ids: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True)
class Workload:
    """Requests, in the order of their arrival.

    Attributes:
        name: a short description.
        requests: the requests, at least one.
        num_prefix_tokens: number of leading prompt tokens that a request shares with others.
        num_prefixes: number of different shared prefixes.
    """

    name: str
    requests: tuple[WorkloadRequest, ...]
    num_prefix_tokens: int = 0
    num_prefixes: int = 0

    @property
    def num_prompt_tokens(self) -> int:
        """Prompt tokens of all requests."""
        return sum(len(request.prompt_token_ids) for request in self.requests)

    @property
    def num_output_tokens(self) -> int:
        """Output tokens of all requests."""
        return sum(request.max_tokens for request in self.requests)


def make_workload(lengths: LengthDistribution, num_requests: int, vocab_size: int, seed: int) -> Workload:
    """Make a workload with random prompts, and with lengths from a distribution.

    Args:
        lengths: the distribution, already scaled to the model's context.
        num_requests: number of requests.
        vocab_size: upper bound of the token ids.
        seed: the same seed gives the same workload.

    Raises:
        ConfigError: `num_requests` is below 1, or `seed` is negative.
    """
    rng = _rng(seed)
    drawn = lengths.draw(num_requests, rng)
    return Workload(f"like {lengths.name}", tuple(_request(each, (), vocab_size, rng) for each in drawn))


def make_shared_prefix_workload(
    lengths: LengthDistribution,
    num_requests: int,
    vocab_size: int,
    seed: int,
    *,
    num_prefix_tokens: int,
    num_prefixes: int = 1,
) -> Workload:
    """Make a workload whose prompts share a prefix, such as a system prompt or examples of the task.

    In the paper's Fig. 16, the prefix of a translation prompt is one example (80 tokens) or five examples
    (341 tokens), and the model's context is 2048. The paper does not give the length of the sentences;
    `lengths.ALPACA` can stand in for it.

    Args:
        lengths: distribution of the tokens after the prefix, already scaled to the model's context.
        num_requests: number of requests.
        vocab_size: upper bound of the token ids.
        seed: the same seed gives the same workload.
        num_prefix_tokens: length of each prefix.
        num_prefixes: number of different prefixes. The requests use them in turn.

    Raises:
        ConfigError: there is no request, no prefix or no token in a prefix; or the context leaves no space
            after the prefix; or `seed` is negative.
    """
    if num_prefix_tokens < 1 or num_prefixes < 1:
        raise ConfigError(
            f"there must be at least 1 prefix of at least 1 token, not {num_prefixes} of {num_prefix_tokens}"
        )
    rng = _rng(seed)
    prefixes = [_token_ids(num_prefix_tokens, vocab_size, rng) for _ in range(num_prefixes)]
    drawn = lengths.draw(num_requests, rng, num_prefix_tokens)
    return Workload(
        name=f"like {lengths.name} with a shared prefix",
        requests=tuple(
            _request(each, prefixes[i % num_prefixes], vocab_size, rng) for i, each in enumerate(drawn)
        ),
        num_prefix_tokens=num_prefix_tokens,
        num_prefixes=num_prefixes,
    )


def _rng(seed: int) -> np.random.Generator:
    if seed < 0:
        raise ConfigError(f"a workload's seed must be at least 0, not {seed}")
    return np.random.default_rng(seed)


def _request(
    lengths: RequestLengths, prefix: tuple[int, ...], vocab_size: int, rng: np.random.Generator
) -> WorkloadRequest:
    own = _token_ids(lengths.num_prompt_tokens - len(prefix), vocab_size, rng)
    return WorkloadRequest(prefix + own, lengths.num_output_tokens)


def _token_ids(count: int, vocab_size: int, rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(rng.integers(0, vocab_size, count).tolist())
