"""Lengths of prompts and outputs, distributed like those of the paper's two data sets.

The paper gives the mean lengths (section 6.1, Fig. 11), but not the requests. So lengths are drawn from a
log-normal distribution: many are short, and a long tail is far longer. Besides the mean, this distribution
needs σ, the standard deviation of the logarithm. σ follows from Fig. 2, which was measured on ShareGPT with
OPT-13B and 2048 tokens. Under Orca (Max), reservations of 2048 slots each take 20.4 + 13.3 + 57.3 = 91.0 %
of the memory. Consider a request with I prompt tokens and O output tokens. At a random moment of its life,
O / 2 tokens are still to come on average. A request with a long output lives longer, so a random moment
finds it more often, in proportion to O. So

    slots that will be filled   13.3 / 91.0 × 2048 = 299 = E[O²] / 2 E[O]
    slots that are filled       20.4 / 91.0 × 2048 = 459 = E[I O] / E[O] + E[O²] / 2 E[O]

With E[O] = 337.99, the first line gives E[O²] / E[O]² = 1.771. For a log-normal distribution this ratio is
exp(σ²), so σ = 0.756. The second line is a check. It gives E[I O] / E[O] = 160, which is close to E[I] =
161.31, so prompts and outputs are nearly independent. The figure says nothing about the spread of the
prompts or about Alpaca, so the same σ is assumed for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from minipaged.errors import ConfigError

_SHARE_TO_COME = 13.3 / (20.4 + 13.3 + 57.3)  # share of a reservation; paper, Fig. 2, Orca (Max)
_PAPER_MAX_MODEL_LEN = 2048  # OPT
_SHAREGPT_MEAN_OUTPUT = 337.99  # paper, section 6.1
SIGMA = math.sqrt(math.log(2 * _SHARE_TO_COME * _PAPER_MAX_MODEL_LEN / _SHAREGPT_MEAN_OUTPUT))
"""The standard deviation of the logarithm of a length, 0.756."""


@dataclass(frozen=True)
class RequestLengths:
    """Tokens of one request: its prompt, including a shared prefix, and its output."""

    num_prompt_tokens: int
    num_output_tokens: int


@dataclass(frozen=True)
class LengthDistribution:
    """Log-normal lengths of prompts and outputs in tokens, independent of each other.

    Attributes:
        name: the data set.
        mean_prompt: mean length of a prompt.
        mean_output: mean length of an output.
        max_model_len: largest number of tokens of one request, prompt and output together.
        sigma: standard deviation of the logarithm of the prompt's length, and of the output's.

    Raises:
        ConfigError: a mean is not positive, `sigma` is negative, or `max_model_len` is below 2.
    """

    name: str
    mean_prompt: float
    mean_output: float
    max_model_len: int = _PAPER_MAX_MODEL_LEN
    sigma: float = SIGMA

    def __post_init__(self) -> None:
        if self.max_model_len < 2:
            raise ConfigError(
                "a request has at least one prompt token and one output token, so "
                f"max_model_len={self.max_model_len} is too short: ask for at least 2"
            )
        if min(self.mean_prompt, self.mean_output) <= 0 or self.sigma < 0:
            raise ConfigError(f"mean lengths must be above 0, and sigma at least 0: {self}")

    def scaled_to(self, max_model_len: int) -> LengthDistribution:
        """The same distribution for another context length. All lengths are scaled in proportion.

        On a slow machine, choose a context below the model's own. Then the workload is small enough to
        finish.
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

        A length is at least 1. As in a server, an output ends at the end of the context. That shortens about
        5 of 1,000 outputs of ShareGPT.

        Args:
            count: number of requests.
            rng: the random generator.
            num_prefix_tokens: tokens before each prompt. They count towards `max_model_len`.

        Raises:
            ConfigError: `count` is below 1, or `max_model_len` leaves no space after the prefix.
        """
        if count < 1:
            raise ConfigError(f"a workload needs at least 1 request, not {count}")
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
    """Whole numbers of at least 1, `[count]`. The mean of a log-normal distribution is exp(μ + σ² / 2)."""
    drawn = rng.lognormal(math.log(mean) - sigma**2 / 2, sigma, count)
    return np.maximum(1, np.rint(drawn)).astype(np.int64)
