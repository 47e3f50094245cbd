"""Extension: a candidate in exercise 4.6."""

from __future__ import annotations

from typing import NamedTuple


class Extension(NamedTuple):
    """A candidate for a beam of the next step: one of this step's beams with one more token.

    Attributes:
        parent: the index of the beam that it extends.
        token_id: the token.
        cum_logprob: the sum of the log-probabilities of all its output tokens.
    """

    parent: int
    token_id: int
    cum_logprob: float
