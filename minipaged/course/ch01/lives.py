"""A queue of requests for exercise 1.5, each at a random moment between its prompt and its end."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Lengths:
    """The distribution of requests' lengths: log-normal prompts and outputs.

    The article gives the mean of the total, about 480 tokens, but not its two parts. Its snapshot holds 366
    tokens per request: on average a prompt and half an output. So prompts have about 250 tokens, and outputs
    about 230.

    Attributes:
        mean_prompt, mean_output: in tokens.
        sigma: standard deviation of the logarithm of both.
        max_model_len: a longer request is cut.
    """

    mean_prompt: float = 252.0
    mean_output: float = 228.0
    sigma: float = 0.6
    max_model_len: int = 2048


def tokens_now(lengths: Lengths, num_requests: int, source: random.Random) -> list[int]:
    """How many tokens each request has, at a uniformly random moment between prompt and end."""
    tokens = []
    for _ in range(num_requests):
        prompt = min(_draw(lengths.mean_prompt, lengths.sigma, source), lengths.max_model_len - 1)
        output = min(_draw(lengths.mean_output, lengths.sigma, source), lengths.max_model_len - prompt)
        tokens.append(prompt + int(source.random() * output))
    return tokens


def _draw(mean: float, sigma: float, source: random.Random) -> int:
    # A log-normal variable has the mean exp(mu + sigma² / 2).
    return max(1, round(source.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)))
