"""Extension: what exercise 4.6 chooses among, whoever wrote it."""

from __future__ import annotations

from typing import NamedTuple


class Extension(NamedTuple):
    """A beam of the next step: one of this step's beams, and one token more.

    Attributes:
        parent: the number of the beam that it extends.
        token_id: the token.
        cum_logprob: the sum of the log-probabilities of all its output tokens.
    """

    parent: int
    token_id: int
    cum_logprob: float
