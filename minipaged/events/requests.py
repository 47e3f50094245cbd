"""Events of whole requests: added, admitted, preempted, resumed, ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestAdded:
    """A request was added, and waits. Its first sequence is `seq_id`, and its tokens are the prompt.

    Attributes:
        prompt_texts: the text of each prompt token; empty without a tokenizer.
        max_tokens: the most output tokens of each sequence.
        num_seqs: the number of its samples or beams.
        is_beam_search: whether `num_seqs` counts beams.
        rank: the key by which waiting and swapped requests are sorted, smallest first.
    """

    request_id: str
    seq_id: int
    time: float
    prompt_token_ids: tuple[int, ...]
    prompt_texts: tuple[str, ...]
    max_tokens: int
    num_seqs: int
    is_beam_search: bool
    priority: int
    cache_salt: str | None
    rank: tuple[int, int]


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """The first `num_tokens` tokens of a sequence without blocks are in cached blocks.

    The sequence counts these tokens as computed. `BlocksTouched` follows.
    """

    seq_id: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class RequestAdmitted:
    """A new request runs from now on. `num_cached_tokens` of its tokens were prefix hits."""

    request_id: str
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class RequestPreempted:
    """A running request will lose all its blocks, and wait again. `BlocksReleased` follows for each sequence.

    If its blocks are swapped out, `BlocksSwappedOut` comes before `BlocksReleased`, and the request joins the
    swapped requests.
    """

    request_id: str


@dataclass(frozen=True, slots=True)
class RequestResumed:
    """A preempted request runs again. `num_cached_tokens` of its tokens were prefix hits.

    If it was swapped out, `BlocksSwappedIn` came before, and `num_cached_tokens` is 0.
    """

    request_id: str
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class RequestFinished:
    """All sequences of a request have ended, and hold no memory."""

    request_id: str
    time: float


@dataclass(frozen=True, slots=True)
class RequestAborted:
    """A request was ended from outside. Its sequences hold no memory."""

    request_id: str
    time: float
