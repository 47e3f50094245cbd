"""What is reported about a token's probability. Values alone; `logprob_tensors` computes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Logprob:
    """One token's log-probability, as a request's output shows it (as vLLM's `Logprob`).

    Attributes:
        logprob: natural logarithm of the probability before penalties, temperature and filters.
        rank: 1 for the most likely token of the vocabulary, 2 for the next. Of tokens equally
            likely, the one with the lower id comes first.
        decoded_token: the token's text by itself; `None` without a tokenizer.
    """

    logprob: float
    rank: int
    decoded_token: str | None = None


@dataclass(frozen=True)
class TokenLogprobs:
    """The same, for one position, before any text is made of it.

    Attributes:
        token_id: the token that was chosen (or, in a prompt, that stands there).
        logprob: its log-probability.
        rank: its rank, from 1.
        top: (token id, log-probability) of the most likely tokens, likeliest first.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


def decode_logprobs(position: TokenLogprobs, decode: Callable[[int], str | None]) -> dict[int, Logprob]:
    """What a request's output shows for one position: the token itself first, then the likeliest.

    Args:
        position: what the sampler reported.
        decode: a token id to its text, or to `None` without a tokenizer.

    Returns:
        Token id to `Logprob`. k + 1 entries, or k if the token is among the k likeliest.
    """

    def entry(token_id: int, logprob: float, rank: int) -> Logprob:
        return Logprob(logprob, rank, decode(token_id))

    result = {position.token_id: entry(position.token_id, position.logprob, position.rank)}
    for rank, (token_id, logprob) in enumerate(position.top, start=1):
        if token_id not in result:
            result[token_id] = entry(token_id, logprob, rank)
    return result
