"""OutputProcessor: turns a request's sampled tokens into texts, and ends its samples.

This module decides whether a sample has ended, because stop strings can only be found in the sample's text.
When the prompt is computed, this module forks the other samples. When a sample ends, it frees the sample's
blocks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from minipaged.choices import FinishReason
from minipaged.engine.detokenizer import Detokenizer
from minipaged.engine.outputs import CompletionOutput, PositionLogprobs, RequestMetrics, RequestOutput
from minipaged.engine.stop_strings import StopChecker
from minipaged.kv.manager import KVManager
from minipaged.loading.loader import LoadedModel
from minipaged.model.tokenizer import Tokenizer
from minipaged.request import Request, Sequence
from minipaged.runner.model_runner import SequenceResult
from minipaged.sampling.logprobs import TokenLogprobs, decode_logprobs
from minipaged.sampling.params import SamplingParams
from minipaged.sampling.sampler import SampledToken


class _SampleOutput:
    """The text and the log-probabilities of one sequence."""

    def __init__(self, request: Request, model: LoadedModel) -> None:
        self.text = ""
        self.stop_reason: int | str | None = None
        self.logprobs: list[PositionLogprobs] | None = None if request.params.logprobs is None else []
        self.cumulative_logprob = 0.0
        params = request.params
        self.stop_checker: StopChecker | None = None
        if params.stop_strings:
            self.stop_checker = StopChecker(params.stop_strings, params.include_stop_str_in_output)
        self.detokenizer: Detokenizer | None = None
        if model.tokenizer is not None:
            skip = request.params.skip_special_tokens
            decode = partial(model.tokenizer.decode, skip_special_tokens=skip)
            texts = model.tokenizer.texts_of_tokens(skip_special_tokens=skip)
            self.detokenizer = Detokenizer(decode, request.prompt_token_ids, texts)


class OutputProcessor:
    """Takes a request's sampled tokens, and makes its `RequestOutput` on demand.

    Attributes:
        request: the request.
    """

    def __init__(self, request: Request, manager: KVManager, model: LoadedModel, arrival_time: float) -> None:
        self.request = request
        self._manager = manager
        self._model = model
        self._tokenizer = model.tokenizer
        self._stop_names = _hidden_stops(request.params, model.tokenizer)
        ends = () if request.params.ignore_eos else model.config.eos_token_ids
        self._end_ids = {*ends, *request.params.stop_ids, *self._stop_names}
        self._samples: dict[int, _SampleOutput] = {}
        self._prompt_logprobs: list[PositionLogprobs | None] = [None]
        self._arrival_time = arrival_time
        self._first_token_time: float | None = None
        self._finished_time: float | None = None

    def take(self, result: SequenceResult) -> int | None:
        """Process a step's result for one of the request's sequences.

        The step's tokens are already counted as computed.

        Returns:
            The number of new output tokens; `None` in the middle of a prompt.
        """
        seq, tokens = result.item.seq, result.sampled_tokens
        if result.prompt_logprobs:
            first = seq.num_computed_tokens - result.item.num_tokens + 1
            self._add_prompt_logprobs(result.prompt_logprobs, first)
        if not tokens:
            return None
        if len(tokens) == 1:
            return self.add_token(seq, tokens[0])
        samples = [seq, *self._fork(seq, len(tokens) - 1)]
        return sum(map(self.add_token, samples, tokens))

    def _fork(self, parent: Sequence, count: int) -> list[Sequence]:
        """Make the other samples, which begin at the end of the prompt."""
        children = []
        for index in range(1, count + 1):
            child = Sequence(self.request.prompt_token_ids, index)
            self._manager.fork(parent, child, parent.num_computed_tokens)
            children.append(child)
        self.request.sequences += children
        return children

    def add_token(self, seq: Sequence, sampled: SampledToken) -> int:
        """Add a token to a sequence. If the token ends the sequence, free its blocks.

        An error in the text of this request ends only this request. The error becomes its stop reason.

        Returns:
            The number of new tokens: 0 if none could be sampled, otherwise 1.
        """
        if self._first_token_time is None:
            self._first_token_time = time.monotonic()
        self._append(seq, sampled)
        if seq.finish_reason is not None:
            self._manager.free(seq)
        return 0 if sampled.error is not None else 1

    def _append(self, seq: Sequence, sampled: SampledToken) -> None:
        """Append a token and its text, and end the sequence if the token ends it."""
        if sampled.error is not None:
            self._finish(seq, "abort", sampled.error)
            return
        seq.token_ids.append(sampled.token_id)
        try:
            self._append_text(seq, self._sample(seq), sampled)
        except Exception as error:
            self._finish(seq, "abort", f"{type(error).__name__}: {error}")

    def _append_text(self, seq: Sequence, sample: _SampleOutput, sampled: SampledToken) -> None:
        request, token_id = self.request, sampled.token_id
        if sampled.logprob is not None and sample.logprobs is not None:
            sample.logprobs.append(decode_logprobs(sampled.logprob, self._decode))
            sample.cumulative_logprob += sampled.logprob.logprob
        num_output_tokens = len(seq.token_ids) - seq.num_prompt_tokens
        # Neither the first `min_tokens` tokens nor their text may end the output.
        is_armed = num_output_tokens > request.params.min_tokens
        if is_armed and token_id in self._end_ids:
            self._end_at(seq, sample, token_id)
            return
        matched = None
        if sample.detokenizer is not None:
            matched = self._append_token_text(sample, sample.detokenizer, token_id, is_armed)
        if matched is not None:
            self._finish(seq, "stop", matched)
        elif num_output_tokens >= request.max_tokens:
            self._finish(seq, "length", None)

    def _end_at(self, seq: Sequence, sample: _SampleOutput, token_id: int) -> None:
        """End a sequence at a token of `_end_ids`. Such a token ends the output, whatever text it has."""
        params = self.request.params
        is_end = token_id in self._model.config.eos_token_ids and not params.ignore_eos
        if is_end or token_id in params.stop_ids:
            # As with a stop string, the text does not include the token that ends it.
            if params.include_stop_str_in_output and sample.detokenizer is not None:
                self._append_token_text(sample, sample.detokenizer, token_id, True)
            self._finish(seq, "stop", None if is_end else token_id)
            return
        stop_name = self._stop_names[token_id]
        self._finish(seq, "stop", stop_name)
        if params.include_stop_str_in_output:
            sample.text += stop_name

    def _append_token_text(
        self, sample: _SampleOutput, detokenizer: Detokenizer, token_id: int, is_armed: bool
    ) -> str | None:
        """Add a token's text. Returns the stop string that it completes, or `None`."""
        delta = detokenizer.append(token_id)
        if sample.stop_checker is None:
            sample.text += delta
            return None
        new = sample.stop_checker.feed(delta, active=is_armed)
        sample.text += new.text
        return new.match

    def _add_prompt_logprobs(self, found: tuple[TokenLogprobs, ...], first: int) -> None:
        """Add the log-probabilities of the prompt tokens from position `first` on.

        Values that are already known are skipped, since a preempted prompt is computed again.
        """
        for logprobs in found[len(self._prompt_logprobs) - first :]:
            self._prompt_logprobs.append(decode_logprobs(logprobs, self._decode))

    def _decode(self, token_id: int) -> str | None:
        """The text of a single token, even of a special one; `None` without a tokenizer."""
        if self._tokenizer is None:
            return None
        return self._tokenizer.decode([token_id], skip_special_tokens=False)

    def abort(self) -> None:
        """End all samples that have not ended."""
        for seq in self.request.unfinished:
            self._finish(seq, "abort", None)

    def build(self) -> RequestOutput:
        """The outputs so far, as copies that later steps do not change."""
        request = self.request
        return RequestOutput(
            request_id=request.request_id,
            prompt=request.prompt,
            prompt_token_ids=list(request.prompt_token_ids),
            outputs=[self._completion(seq) for seq in request.sequences],
            finished=request.is_finished,
            num_cached_tokens=request.num_cached_tokens or 0,
            num_preemptions=request.num_preemptions,
            prompt_logprobs=None if request.params.prompt_logprobs is None else list(self._prompt_logprobs),
            metrics=RequestMetrics(self._arrival_time, self._first_token_time, self._finished_time),
            block_usage=replace(request.block_usage),
        )

    def _completion(self, seq: Sequence) -> CompletionOutput:
        sample = self._sample(seq)
        return CompletionOutput(
            index=seq.index,
            text=sample.text,
            token_ids=seq.token_ids[seq.num_prompt_tokens :],
            finish_reason=seq.finish_reason,
            stop_reason=sample.stop_reason,
            cumulative_logprob=None if sample.logprobs is None else sample.cumulative_logprob,
            logprobs=None if sample.logprobs is None else [dict(one) for one in sample.logprobs],
        )

    def _sample(self, seq: Sequence) -> _SampleOutput:
        sample = self._samples.get(seq.index)
        if sample is None:
            sample = self._samples[seq.index] = _SampleOutput(self.request, self._model)
        return sample

    def _finish(self, seq: Sequence, reason: FinishReason, stop_reason: int | str | None) -> None:
        seq.finish_reason = reason
        sample = self._sample(seq)
        sample.stop_reason = stop_reason
        # Text that was held back belongs to the output. After a stop string, no text is held back.
        self._flush(sample)
        if self.request.is_finished:
            self._finished_time = time.monotonic()

    def _flush(self, sample: _SampleOutput) -> None:
        if sample.detokenizer is None:
            return
        try:
            delta = sample.detokenizer.flush()
            if sample.stop_checker is None:
                sample.text += delta
                return
            held = sample.stop_checker.feed(delta, active=False)
            sample.text += held.text + sample.stop_checker.flush()
        except Exception:
            # The error that ended this request may occur again here. Then the text stays as it is.
            return


def _hidden_stops(params: SamplingParams, tokenizer: Tokenizer | None) -> Mapping[int, str]:
    """By token id, the stop strings that are special tokens and so do not appear in the text."""
    if tokenizer is None or not params.skip_special_tokens:
        return {}
    special = tokenizer.special_token_ids
    return {special[name]: name for name in params.stop_strings if name in special}
