"""ModelRunner: one step's tensors, the forward pass, the samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minipaged.attention.layout import AttentionLayout
from minipaged.kv.cache import KVCache
from minipaged.kv.swap import SwapCache
from minipaged.model.decoder import Decoder
from minipaged.runner.decode_steps import DecodeSteps
from minipaged.runner.prompt_logprobs import find_prompt_positions, queue_all_prompt_logprobs
from minipaged.runner.step_batch import LogitsRows, StepBatch, build_step_batch, find_logits_rows
from minipaged.sampling.beam_search import Candidates
from minipaged.sampling.candidates import queue_likeliest_tokens
from minipaged.sampling.logprobs import TokenLogprobs
from minipaged.sampling.sampler import SampledToken, queue_samples
from minipaged.scheduler.scheduler_output import ScheduledSequence, SchedulerOutput
from minipaged.transfer import queued_together, to_device


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
        layout: how keys and values are kept and read.
        eos_token_ids: what ends an output.
        swap_cache: the CPU memory for swapped blocks, if there is any.
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
    def execute(self, plan: SchedulerOutput) -> list[SequenceResult]:
        """Move the blocks that a plan moves, compute its tokens, and sample.

        Args:
            plan: at least one sequence is scheduled.
        """
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
        """What goes into the forward pass, and which rows of its result are wanted. All on the host."""
        batch = build_step_batch(plan.scheduled, from_start=not self._layout.keeps_kv)
        return batch, find_logits_rows(batch, self._eos_token_ids)

    def _forward(self, batch: StepBatch, rows: LogitsRows) -> tuple[Tensor, Tensor]:
        """The hidden states of a step's tokens `[T or more, hidden]`, and `rows.last` on the device. All
        that the step needs there travels in one copy."""
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
        """Sampled tokens, candidates of beams and prompt log-probabilities. The device computes all of
        them before the host waits for it, once."""
        logits = self._decoder.logits(hidden[last])  # [R + B, vocab]
        num_sampled = len(rows.sampling_rows)
        nothing = queued_together([], self._device)
        samples = queue_samples(logits[:num_sampled], rows.sampling_rows)
        candidates, of_prompts, positions = nothing, nothing, []
        if rows.num_candidates:
            candidates = queue_likeliest_tokens(logits[num_sampled:], rows.num_candidates)
        if batch.wants_prompt_logprobs:
            positions = find_prompt_positions(batch)
            of_prompts = queue_all_prompt_logprobs(self._decoder, hidden, positions)
        (tokens, of_beams), logprobs = samples.beside(candidates).beside(of_prompts).read()
        results = [SequenceResult(item, [], None, []) for item in batch.items]
        for index, token in zip(rows.sequences, tokens, strict=False):
            results[index].sampled_tokens.append(token)
        for index, found in zip(rows.sequences[num_sampled:], of_beams, strict=True):
            results[index] = SequenceResult(results[index].item, [], found, [])
        for each, entries in zip(positions, logprobs, strict=True):
            results[each.index].prompt_logprobs.extend(entries)
        return results
