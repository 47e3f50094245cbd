"""The outputs of the engine. Names and fields follow vLLM's `outputs.py`."""

from __future__ import annotations

from dataclasses import dataclass, field

from minipaged.choices import FinishReason
from minipaged.kv.block_usage import BlockUsage
from minipaged.sampling.logprobs import Logprob

PositionLogprobs = dict[int, Logprob]
"""For one position: the log-probabilities of the chosen token and of the likeliest tokens, by token id."""


@dataclass(frozen=True)
class RequestMetrics:
    """The times of a request's events, in seconds of `time.monotonic()`."""

    arrival_time: float
    first_token_time: float | None = None
    finished_time: float | None = None


@dataclass(frozen=True)
class CompletionOutput:
    """One sample of a request, up to now, or one hypothesis of a beam search.

    Attributes:
        index: the number of the sample, from 0. For a hypothesis, its rank; 0 is the best.
        text: the output as text; empty for a model without a tokenizer.
        token_ids: the output's tokens, including those of a stop string or an end-of-sequence token.
        finish_reason: `"stop"`, `"length"` or `"abort"`; `None` while it runs.
        stop_reason: the stop string or stop token id that ended it; `None` for an end-of-sequence token.
            If an error ended the request, a text that says what went wrong.
        cumulative_logprob: the sum of the output tokens' log-probabilities. Samples have it only if
            `logprobs` was asked for; hypotheses always have it.
        logprobs: one entry for each output token, if asked for.
        score: the number by which hypotheses are ranked; see `BeamSearchParams`. `None` for a sample.
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
    """All samples of a request, up to now.

    Attributes:
        request_id: the name that the caller gave the request.
        prompt: the prompt's text, if it was given as text.
        prompt_token_ids: the prompt's tokens.
        outputs: one entry for each sample. Until the prompt is computed, only one.
        finished: whether all samples have ended.
        num_cached_tokens: prompt tokens that were found in the prefix cache.
        num_preemptions: how often the request lost its blocks.
        prompt_logprobs: one entry for each prompt token, if asked for. The first is `None`, since no
            position predicts the first token.
        metrics: when the request arrived, got its first token, and finished.
        block_usage: how many blocks the request held, and what share its sequences saved by sharing.
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
        tokens: the tokens of the prompt and the output, as in vLLM. They include the end-of-sequence token,
            if there is one.
        text: `tokens` as text, without special tokens; empty for a model without a tokenizer.
        cum_logprob: the sum of the output tokens' log-probabilities.
        score: the number by which hypotheses are ranked; see `BeamSearchParams`.
        finish_reason: `"stop"` after an end-of-sequence token, `"abort"` after an error, otherwise
            `"length"`.
        stop_reason: after an error, a text that says what went wrong.
    """

    tokens: list[int]
    text: str
    cum_logprob: float
    score: float
    finish_reason: FinishReason
    stop_reason: int | str | None = None


@dataclass(frozen=True)
class BeamSearchOutput:
    """The result of `LLM.beam_search` for one prompt.

    Attributes:
        sequences: the `beam_width` hypotheses, best first.
        prompt_token_ids: the prompt's tokens. Each of `sequences` begins with them.
        num_preemptions: how often the search lost its blocks.
        block_usage: how many blocks the search held and copied, and what share it saved by sharing.
        metrics: when the request arrived, took its first search step, and finished.
    """

    sequences: list[BeamSearchSequence]
    prompt_token_ids: list[int]
    num_preemptions: int
    block_usage: BlockUsage
    metrics: RequestMetrics
