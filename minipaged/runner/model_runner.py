"""ModelRunner: one step's tensors, the forward pass, the samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from minipaged.attention.layout import AttentionLayout
from minipaged.kv.cache import KVCache
from minipaged.kv.swap import SwapCache
from minipaged.model.decoder import Decoder
from minipaged.request import Request, Sequence
from minipaged.runner.decode_steps import DecodeSteps
from minipaged.runner.step_batch import StepBatch, build_step_batch
from minipaged.sampling.beam_search import Candidates
from minipaged.sampling.candidates import RankedTokens, queue_likeliest_tokens
from minipaged.sampling.logprob_tensors import queue_prompt_logprobs
from minipaged.sampling.logprobs import TokenLogprobs
from minipaged.sampling.queued import Queued, queued_together
from minipaged.sampling.sampler import SampledToken, SamplingRow, queue_samples
from minipaged.sampling.uniform import uniform
from minipaged.scheduler.scheduler import ScheduledSequence, SchedulerOutput
from minipaged.to_device import IntArray, to_device

PROMPT_LOGITS_AT_ONCE = 128
"""Rows of logits that are in memory at once for `prompt_logprobs`."""


@dataclass(frozen=True)
class SequenceResult:
    """What a step found out about one scheduled sequence.

    Attributes:
        item: what was scheduled.
        sampled_tokens: none in the middle of a prompt, `n` where a prompt ends, else one. None for a
            beam.
        candidates: of a beam that is computed to its end, the likeliest next tokens; else `None`.
        prompt_logprobs: for the prompt tokens that follow those computed in this step, if asked for.
    """

    item: ScheduledSequence
    sampled_tokens: list[SampledToken]
    candidates: Candidates | None
    prompt_logprobs: list[TokenLogprobs]


class ModelRunner:
    """Runs the model over what the scheduler planned.

    Args:
        decoder: the model.
        cache: the KV cache's tensors.
        swap_cache: the CPU memory for swapped blocks, if there is any.
        layout: how keys and values are kept and read.
        decode_steps: what computes decode steps in the place of the decoder, if there is something.
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: KVCache,
        *,
        layout: AttentionLayout,
        eos_token_ids: tuple[int, ...],
        swap_cache: SwapCache | None = None,
        decode_steps: DecodeSteps | None = None,
    ) -> None:
        self._decoder = decoder
        self._cache = cache
        self._swap_cache = swap_cache
        self._layout = layout
        self._decode_steps = decode_steps
        self._device = decoder.device
        self._eos_token_ids = eos_token_ids

    @torch.inference_mode()
    def execute(self, output: SchedulerOutput) -> list[SequenceResult]:
        """Do a step's swaps and block copies, compute its tokens, and sample. At least one is scheduled."""
        if self._swap_cache is not None:
            self._swap_cache.copy_out(output.swap_outs)
            self._swap_cache.copy_in(output.swap_ins)
        self._cache.copy_blocks([copy for item in output.scheduled for copy in item.copies])
        batch = build_step_batch(output.scheduled, from_start=not self._layout.keeps_kv)
        wanted = _wanted(batch, self._eos_token_ids)
        hidden, last = self._forward(batch, wanted.last)  # [T or more, hidden], [R + B]
        pieces = [
            (i, piece) for i in range(len(batch.items)) for piece in self._prompt_pieces(hidden, batch, i)
        ]
        chosen = self._queue_choices(wanted, hidden, last)
        of_prompts = queued_together([piece for _, piece in pieces], self._device)
        # All work is queued; here the host waits for the device, once for everything.
        (tokens, found), logprobs = chosen.beside(of_prompts).read()
        sampled: list[list[SampledToken]] = [[] for _ in batch.items]
        for i, token in zip(wanted.sequences, tokens, strict=False):
            sampled[i].append(token)
        candidates = dict(zip(wanted.sequences[len(tokens) :], found, strict=True))
        prompt_logprobs: list[list[TokenLogprobs]] = [[] for _ in batch.items]
        for (i, _), entries in zip(pieces, logprobs, strict=True):
            prompt_logprobs[i] += entries
        return [
            SequenceResult(item, sampled[i], candidates.get(i), prompt_logprobs[i])
            for i, item in enumerate(batch.items)
        ]

    def _forward(self, batch: StepBatch, rows: IntArray) -> tuple[Tensor, Tensor]:
        """The hidden states of a step's tokens, and `rows`, on the device. All that the step needs there
        travels in one copy."""
        steps = self._decode_steps
        bucket = None if steps is None else steps.bucket_of(batch)
        if steps is not None and bucket is not None:
            return steps.run(batch, bucket, rows)
        arrays = (batch.token_ids, batch.positions, rows, *self._layout.locate(batch))
        token_ids, positions, rows_there, *located = to_device(arrays, self._device)
        return self._decoder(token_ids, positions, self._layout.attend(batch, located)), rows_there

    def _queue_choices(
        self, wanted: _Wanted, hidden: Tensor, last: Tensor
    ) -> Queued[tuple[list[SampledToken], list[RankedTokens]]]:
        """What can follow the sequences of the batch, all at once: sampled tokens, and the candidates of
        those that are beams."""
        if not wanted.sequences:
            return queued_together([], self._device).beside(queued_together([], self._device))
        logits = self._decoder.logits(hidden[last])  # [R + B, vocab]
        rows = wanted.sampling_rows
        samples = queue_samples(logits[: len(rows)], rows)
        return samples.beside(queue_likeliest_tokens(logits[len(rows) :], wanted.num_candidates))

    def _prompt_pieces(
        self, hidden: Tensor, batch: StepBatch, index: int
    ) -> Iterator[Queued[list[TokenLogprobs]]]:
        """Token p + 1 is predicted by position p, so a step that computes positions `start` to
        `end - 1` tells the log-probabilities of prompt tokens `start + 1` to `end`."""
        item = batch.items[index]
        wanted = item.request.params.prompt_logprobs
        seq = item.seq
        start = seq.num_computed_tokens
        end = min(start + item.num_tokens, seq.num_prompt_tokens - 1)
        if wanted is None:
            return
        first_row = batch.rows[index].stop - item.num_tokens
        # In pieces: the logits of a long prompt would take more memory than the model.
        for at in range(start, end, PROMPT_LOGITS_AT_ONCE):
            stop = min(at + PROMPT_LOGITS_AT_ONCE, end)
            rows = slice(first_row + at - start, first_row + stop - start)
            logits = self._decoder.logits(hidden[rows])  # [stop - at, vocab]
            following = torch.tensor(seq.token_ids[at + 1 : stop + 1])  # [stop - at]
            yield queue_prompt_logprobs(logits, following, wanted)


@dataclass(frozen=True)
class _Wanted:
    """The logits that a step needs: R rows to sample from, then B rows of beams.

    Attributes:
        sequences: for each row, which of the step's sequences it follows.
        last: int64 `[R + B]`, for each row, that sequence's last token among the step's tokens.
        sampling_rows: how the first R are sampled.
        num_candidates: how many next tokens each of the B beams wants.
    """

    sequences: list[int]
    last: IntArray
    sampling_rows: list[SamplingRow]
    num_candidates: list[int]


def _wanted(batch: StepBatch, eos_token_ids: tuple[int, ...]) -> _Wanted:
    sequences: list[int] = []
    rows: list[SamplingRow] = []
    beams: list[int] = []
    counts: list[int] = []
    for i, item in enumerate(batch.items):
        search = item.request.search
        if search is None:
            sampling = _sampling_rows(item, eos_token_ids)
            sequences += [i] * len(sampling)
            rows += sampling
        elif item.reaches_end:
            beams.append(i)
            counts.append(search.num_candidates)
    sequences += beams
    last = batch.query_starts[1:][np.array(sequences, dtype=np.int64)].astype(np.int64) - 1  # [R + B]
    return _Wanted(sequences, last, rows, counts)


def _sampling_rows(item: ScheduledSequence, eos_token_ids: tuple[int, ...]) -> list[SamplingRow]:
    """One row for each token to sample after this sequence: they all read its last token's logits."""
    request = item.request
    if not item.reaches_end:
        return []
    if not request.has_forked:  # the prompt is done, and all samples begin here
        return [_sampling_row(request, item.seq, i, eos_token_ids) for i in range(request.params.n)]
    return [_sampling_row(request, item.seq, item.seq.index, eos_token_ids)]


def _sampling_row(
    request: Request, seq: Sequence, sample_index: int, eos_token_ids: tuple[int, ...]
) -> SamplingRow:
    params = request.params
    banned: tuple[int, ...] = ()
    if seq.num_output_tokens < params.min_tokens:
        banned = (*eos_token_ids, *params.stop_ids)
    return SamplingRow(
        params=params,
        prompt_token_ids=request.prompt_token_ids,
        output_token_ids=seq.token_ids[seq.num_prompt_tokens :] if params.has_penalties else (),
        uniform=uniform(request.sampling_seed, sample_index, seq.num_output_tokens),
        banned_token_ids=banned,
    )
