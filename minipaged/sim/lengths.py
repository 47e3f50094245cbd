"""Lengths of prompts and outputs, distributed like those of the paper's two data sets.

The paper gives the mean lengths (section 6.1, Fig. 11), not the requests, so they are drawn: log-normal,
a long tail of lengths above many short ones. That takes one number more, the spread of the logarithm. It
follows from Fig. 2, which was measured on ShareGPT with OPT-13B and 2048 tokens. Under Orca (Max), the
reservations are 20.4 + 13.3 + 57.3 = 91.0 % of the memory, 2048 slots each. At a random moment in the
life of a request of I prompt and O output tokens, O / 2 are still to come. Long outputs are met more often,
in proportion to O. So

    slots that will be filled   13.3 / 91.0 × 2048 = 299 = E[O²] / 2 E[O]
    slots that are filled       20.4 / 91.0 × 2048 = 459 = E[I O] / E[O] + E[O²] / 2 E[O]

With E[O] = 337.99 the first line says that E[O²] / E[O]² = 1.771. Of a log-normal distribution this is
exp(σ²), so σ = 0.756. The second line checks it: E[I O] / E[O] = 160, and E[I] is 161.31, so prompts
and outputs are as good as independent. Nothing follows for the spread of the prompts, nor for Alpaca;
these are taken to be as wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from minipaged.errors import ConfigError

_SHARE_TO_COME = 13.3 / (20.4 + 13.3 + 57.3)  # of a reservation; paper, Fig. 2, Orca (Max)
_PAPER_MAX_MODEL_LEN = 2048  # OPT
_SHAREGPT_MEAN_OUTPUT = 337.99  # paper, section 6.1
SIGMA = math.sqrt(math.log(2 * _SHARE_TO_COME * _PAPER_MAX_MODEL_LEN / _SHAREGPT_MEAN_OUTPUT))
"""The standard deviation of the logarithm of a length, 0.756."""


@dataclass(frozen=True)
class RequestLengths:
    """Tokens of one request: its prompt, a shared prefix included, and its output."""

    num_prompt_tokens: int
    num_output_tokens: int


@dataclass(frozen=True)
class LengthDistribution:
    """How long prompts and outputs are, in tokens: log-normal, and independent of each other.

    Attributes:
        name: the data set.
        mean_prompt: mean length of a prompt.
        mean_output: mean length of an output.
        max_model_len: no prompt and output together are longer.
        sigma: standard deviation of the logarithms of both.

    Raises:
        ConfigError: a length that is not positive, or no room for a prompt and an output.
    """

    name: str
    mean_prompt: float
    mean_output: float
    max_model_len: int = _PAPER_MAX_MODEL_LEN
    sigma: float = SIGMA

    def __post_init__(self) -> None:
        if self.max_model_len < 2:
            raise ConfigError(
                "a request is at least one prompt token and one output token, so "
                f"max_model_len={self.max_model_len} is too short: ask for at least 2"
            )
        if min(self.mean_prompt, self.mean_output) <= 0 or self.sigma < 0:
            raise ConfigError(f"mean lengths must be above 0, and sigma at least 0: {self}")

    def scaled_to(self, max_model_len: int) -> LengthDistribution:
        """The same distribution in a model with another context: all lengths in proportion.

        A small model is also a slow machine's model: a smaller `max_model_len` than its own gives
        it a workload that it can finish.
        """
        scale = max_model_len / self.max_model_len
        return replace(
            self,
            mean_prompt=self.mean_prompt * scale,
            mean_output=self.mean_output * scale,
            max_model_len=max_model_len,
        )

    def draw(self, count: int, rng: np.random.Generator, num_prefix_tokens: int = 0) -> list[RequestLengths]:
        """The lengths of `count` requests.

        A length is at least 1. An output ends where the context does, as in a server; that cuts about
        5 in 1,000 of ShareGPT's short.

        Args:
            count: how many.
            rng: where the draws come from.
            num_prefix_tokens: tokens that stand before each prompt; they count for `max_model_len`.

        Raises:
            ConfigError: fewer than one request, or no room behind the prefix.
        """
        if count < 1:
            raise ConfigError(f"a workload has at least 1 request, not {count}")
        room = self.max_model_len - num_prefix_tokens
        if room < 2:
            raise ConfigError(
                f"a prefix of {num_prefix_tokens:,} tokens leaves no room for a prompt and an output within "
                f"max_model_len={self.max_model_len:,}"
            )
        prompts = np.minimum(_log_normal(self.mean_prompt, self.sigma, count, rng), room - 1)
        outputs = np.minimum(_log_normal(self.mean_output, self.sigma, count, rng), room - prompts)
        return [
            RequestLengths(num_prefix_tokens + prompt, output)
            for prompt, output in zip(prompts.tolist(), outputs.tolist(), strict=True)
        ]


SHAREGPT = LengthDistribution("ShareGPT", mean_prompt=161.31, mean_output=_SHAREGPT_MEAN_OUTPUT)
"""Conversations with ChatGPT (paper, section 6.1): long, and of very different lengths."""

ALPACA = LengthDistribution("Alpaca", mean_prompt=19.31, mean_output=58.45)
"""Instructions (paper, section 6.1): short."""


def _log_normal(mean: float, sigma: float, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Whole numbers of at least 1, `[count]`. The mean of a log-normal is exp(μ + σ² / 2)."""
    drawn = rng.lognormal(math.log(mean) - sigma**2 / 2, sigma, count)
    return np.maximum(1, np.rint(drawn)).astype(np.int64)
