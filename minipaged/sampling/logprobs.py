"""The reported log-probabilities of tokens, as values. `logprob_tensors` computes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Logprob:
    """One token's log-probability, as a request's output shows it. The fields are those of vLLM's `Logprob`.

    Attributes:
        logprob: natural logarithm of the probability before penalties, temperature and filters.
        rank: 1 for the likeliest token of the vocabulary, 2 for the next one. Equally likely tokens are
            ranked by their ids, lowest first.
        decoded_token: the text of this token alone; `None` without a tokenizer.
    """

    logprob: float
    rank: int
    decoded_token: str | None = None


@dataclass(frozen=True)
class TokenLogprobs:
    """The log-probabilities of one position, before tokens are decoded into text.

    Attributes:
        token_id: the sampled token, or the token of the prompt.
        logprob: its log-probability.
        rank: its rank, from 1.
        top: (token id, log-probability) of the likeliest tokens, likeliest first.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


def decode_logprobs(position: TokenLogprobs, decode: Callable[[int], str | None]) -> dict[int, Logprob]:
    """The entries of a request's output for one position.

    Args:
        position: the log-probabilities of the position.
        decode: returns the text of a token id, or `None` without a tokenizer.

    Returns:
        `Logprob` by token id: first the token itself, then the k likeliest tokens. These are k + 1
        entries, or k if the token is one of the k likeliest.
    """

    def entry(token_id: int, logprob: float, rank: int) -> Logprob:
        return Logprob(logprob, rank, decode(token_id))

    result = {position.token_id: entry(position.token_id, position.logprob, position.rank)}
    for rank, (token_id, logprob) in enumerate(position.top, start=1):
        if token_id not in result:
            result[token_id] = entry(token_id, logprob, rank)
    return result
