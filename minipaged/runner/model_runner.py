"""ModelRunner: makes the tensors of a step, runs the forward pass, and samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minipaged.attention.layout import AttentionLayout
from minipaged.kv.cache import KVCache
from minipaged.kv.swap_cache import SwapCache
from minipaged.model.decoder import Decoder
from minipaged.runner.capture import on_device
from minipaged.runner.decode_steps import DecodeSteps
from minipaged.runner.prompt_logprobs import find_prompt_positions, queue_all_prompt_logprobs
from minipaged.runner.step_batch import (
    LogitsRows,
    StepBatch,
    build_step_batch,
    find_logits_rows,
    sampling_rows,
)
from minipaged.sampling.beam_search import Candidates
from minipaged.sampling.candidates import queue_likeliest_tokens
from minipaged.sampling.logprobs import TokenLogprobs
from minipaged.sampling.sampler import (
    DrawTokens,
    SampledToken,
    draw_tokens,
    queue_samples,
    sampling_device,
)
from minipaged.scheduler.scheduler_output import ScheduledSequence, SchedulerOutput
from minipaged.transfer import queued_together, to_device


@dataclass(slots=True)  # not frozen, for speed; see `ScheduledSequence`
class SequenceResult:
    """The result of a step for one scheduled sequence.

    Attributes:
        item: the scheduled sequence.
        sampled_tokens: empty in the middle of a prompt, `n` tokens at the end of a prompt, otherwise one
            token. Always empty for a beam.
        candidates: the likeliest next tokens of a beam that this step computed to its end; otherwise
            `None`.
        prompt_logprobs: if asked for: for each prompt position that this step computed, the
            log-probability of the prompt token after it.
    """

    item: ScheduledSequence
    sampled_tokens: list[SampledToken]
    candidates: Candidates | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()


class ModelRunner:
    """Runs the model on the steps that the scheduler plans.

    Args:
        decoder: the model.
        cache: the KV cache.
        layout: stores keys and values, and computes attention over them.
        eos_token_ids: the tokens that end an output.
        swap_cache: the CPU memory for swapped blocks, if the engine swaps.
        decode_steps: if given, computes decode steps faster than the decoder does.
        draw_tokens: filters and draws the tokens of rows that are not greedy.
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
        draw_tokens: DrawTokens = draw_tokens,
    ) -> None:
        self._decoder = decoder
        self._cache = cache
        self._swap_cache = swap_cache
        self._layout = layout
        self._decode_steps = decode_steps
        self._draw_tokens = draw_tokens
        self._device = decoder.device
        self._on_device = on_device(decoder.device)
        self._sampling_device = sampling_device(decoder.device)
        self._eos_token_ids = eos_token_ids

    @torch.inference_mode()
    def execute(self, plan: SchedulerOutput) -> list[SequenceResult]:
        """Execute a plan: swap and copy blocks, compute the tokens, and sample.

        Args:
            plan: a plan with at least one scheduled sequence.
        """
        with self._on_device:
            self._move_blocks(plan)
            batch, rows = self._prepare(plan)
            hidden, last = self._forward(batch, rows)
            return self._sample(batch, rows, hidden, last)

    def _move_blocks(self, plan: SchedulerOutput) -> None:
        if self._swap_cache is not None:
            self._swap_cache.copy_out(plan.swap_outs)
            self._swap_cache.copy_in(plan.swap_ins)
        self._cache.copy_blocks([copy for item in plan.scheduled for copy in item.copies])

    def _prepare(self, plan: SchedulerOutput) -> tuple[StepBatch, LogitsRows]:
        """The input of the forward pass, and the rows of its result that are needed. Both are on the host."""
        batch = build_step_batch(plan.scheduled, from_start=not self._layout.keeps_kv)
        return batch, find_logits_rows(batch)

    def _forward(self, batch: StepBatch, rows: LogitsRows) -> tuple[Tensor, Tensor]:
        """Run the decoder. All inputs of the step are sent to the device in one copy.

        Returns:
            The hidden states of the step's tokens, `[T or more, hidden]`, and `rows.last` on the device.
        """
        steps = self._decode_steps
        bucket = None if steps is None else steps.bucket_of(batch)
        if steps is not None and bucket is not None:
            return steps.run(batch, bucket, rows.last)
        arrays = (batch.token_ids, batch.positions, rows.last, *self._layout.locate(batch))
        token_ids, positions, last, *located = to_device(arrays, self._device)
        return self._decoder(token_ids, positions, self._layout.attend(batch, located)), last

    def _sample(
        self, batch: StepBatch, rows: LogitsRows, hidden: Tensor, last: Tensor
    ) -> list[SequenceResult]:
        """Sampled tokens, candidates of beams and prompt log-probabilities.

        All of them are queued on the device first, so that the host waits for the device only once.
        """
        logits = self._decoder.logits(hidden[last]).to(self._sampling_device)  # [R + B, vocab]
        num_sampled = len(rows.samples)
        nothing = queued_together([], self._sampling_device)
        how = sampling_rows(batch, rows, self._eos_token_ids)
        samples = queue_samples(logits[:num_sampled], how, self._draw_tokens)
        candidates, of_prompts, positions = nothing, nothing, []
        if rows.num_candidates:
            candidates = queue_likeliest_tokens(logits[num_sampled:], rows.num_candidates)
        if batch.wants_prompt_logprobs:
            positions = find_prompt_positions(batch)
            of_prompts = queue_all_prompt_logprobs(self._decoder, hidden, positions)
        (tokens, of_beams), logprobs = samples.beside(candidates).beside(of_prompts).read()
        results = results_of(batch, rows, tokens)
        for index, found in zip(rows.sequences[num_sampled:], of_beams, strict=True):
            results[index].candidates = found
        for each, entries in zip(positions, logprobs, strict=True):
            results[each.index].prompt_logprobs += tuple(entries)
        return results


def results_of(batch: StepBatch, rows: LogitsRows, tokens: Sequence[SampledToken]) -> list[SequenceResult]:
    """One result for each sequence of a step, with the tokens that were sampled for it.

    Args:
        batch: the step.
        rows: its rows of logits.
        tokens: one for each of the R rows that are sampled.
    """
    results = [SequenceResult(item, []) for item in batch.items]
    for index, token in zip(rows.sequences, tokens, strict=False):
        results[index].sampled_tokens.append(token)
    return results
