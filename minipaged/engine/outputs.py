"""What the engine gives back. Names and fields follow vLLM's `outputs.py`."""

from __future__ import annotations

from dataclasses import dataclass, field

from minipaged.choices import FinishReason
from minipaged.kv.block_usage import BlockUsage
from minipaged.sampling.logprobs import Logprob

PositionLogprobs = dict[int, Logprob]
"""For one position: the chosen token and the most likely ones, by token id."""


@dataclass(frozen=True)
class RequestMetrics:
    """When things happened to a request, in seconds of `time.monotonic()`."""

    arrival_time: float
    first_token_time: float | None = None
    finished_time: float | None = None


@dataclass(frozen=True)
class CompletionOutput:
    """One sample of a request, as far as it has come; or one hypothesis of a beam search.

    Attributes:
        index: the sample's number, from 0; of a hypothesis its rank, best first.
        text: the output as text; empty for a model without a tokenizer.
        token_ids: the output's tokens, including those of a stop string or an end-of-sequence.
        finish_reason: `"stop"`, `"length"` or `"abort"`; `None` while it runs.
        stop_reason: the stop string or the stop token id that ended it; `None` for end of
            sequence. After an error in this request: what went wrong.
        cumulative_logprob: sum of the chosen tokens' log-probabilities, if `logprobs` was asked for;
            a hypothesis always has it.
        logprobs: for each output token, if asked for.
        score: of a hypothesis, what it is ranked by; see `BeamSearchParams`.
    """

    index: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    cumulative_logprob: float | None = None
    logprobs: list[PositionLogprobs] | None = None
    score: float | None = None


@dataclass(frozen=True)
class RequestOutput:
    """A request's samples, as far as they have come.

    Attributes:
        request_id: the caller's name for it.
        prompt: the prompt's text, if it was given as text.
        prompt_token_ids: the prompt's tokens.
        outputs: one for each sample; one alone until the prompt is computed.
        finished: whether all samples have ended.
        num_cached_tokens: prompt tokens that were found in the prefix cache.
        num_preemptions: how often the request lost its blocks and was computed again.
        prompt_logprobs: for each prompt token, if asked for; the first is `None`, since nothing
            comes before it.
        metrics: when it arrived, gave its first token, and finished.
        block_usage: the blocks that it held, and what sharing saved among its sequences.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int
    num_preemptions: int
    prompt_logprobs: list[PositionLogprobs | None] | None
    metrics: RequestMetrics
    block_usage: BlockUsage = field(default_factory=BlockUsage)


@dataclass(frozen=True)
class BeamSearchSequence:
    """One hypothesis of a beam search.

    Attributes:
        tokens: the prompt and the output, an end of sequence included. (As in vLLM, with the prompt.)
        text: `tokens` as text, without special tokens; empty for a model without a tokenizer.
        cum_logprob: the sum of the output tokens' log-probabilities.
        score: what hypotheses are ranked by; see `BeamSearchParams`.
        finish_reason: `"stop"` at an end of sequence, else `"length"`; `"abort"` after an error.
        stop_reason: after an error, what went wrong.
    """

    tokens: list[int]
    text: str
    cum_logprob: float
    score: float
    finish_reason: FinishReason
    stop_reason: int | str | None = None


@dataclass(frozen=True)
class BeamSearchOutput:
    """What `LLM.beam_search` gives for one prompt.

    Attributes:
        sequences: the hypotheses, best first; `beam_width` of them.
        prompt_token_ids: the prompt's tokens, with which each of `sequences` begins.
        num_preemptions: how often the search lost its blocks and was computed again.
        block_usage: the blocks that it held, those it copied, and what sharing saved.
        metrics: when it arrived, took its first step, and finished.
    """

    sequences: list[BeamSearchSequence]
    prompt_token_ids: list[int]
    num_preemptions: int
    block_usage: BlockUsage
    metrics: RequestMetrics
