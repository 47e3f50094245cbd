"""ModelRunner: one step's tensors, the forward pass, the samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minipaged.attention.metadata import Attention, AttentionMetadata
from minipaged.kv.block_table import SlotMapping
from minipaged.kv.cache import KVCache, WriteKV
from minipaged.model.decoder import AttendFn, Decoder
from minipaged.request import Request, Sequence
from minipaged.sampling.logprobs import TokenLogprobs
from minipaged.sampling.sampler import SampledToken, SamplingRow, sample
from minipaged.sampling.token_logprobs import prompt_logprobs
from minipaged.sampling.uniform import uniform
from minipaged.scheduler import ScheduledSequence, SchedulerOutput
from minipaged.step_batch import StepBatch, build_step_batch

PROMPT_LOGITS_AT_ONCE = 128
"""Rows of logits that are in memory at once for `prompt_logprobs`."""


@dataclass(frozen=True)
class SequenceResult:
    """What a step found out about one scheduled sequence.

    Attributes:
        item: what was scheduled.
        samples: the next tokens: none in the middle of a prompt, `n` where a prompt ends, else one.
        prompt_logprobs: for the prompt tokens that follow those computed in this step, if asked for.
    """

    item: ScheduledSequence
    samples: list[SampledToken]
    prompt_logprobs: list[TokenLogprobs]


class ModelRunner:
    """Runs the model over what the scheduler planned.

    Args:
        decoder: the model.
        cache: the KV cache's tensors.
        attention: the attention backend.
        write_kv: stores keys and values by slot.
        slot_mapping: positions to slots.
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: KVCache,
        *,
        attention: Attention,
        write_kv: WriteKV,
        slot_mapping: SlotMapping,
        device: torch.device,
        eos_token_ids: tuple[int, ...],
    ) -> None:
        self._decoder = decoder
        self._cache = cache
        self._attention = attention
        self._write_kv = write_kv
        self._slot_mapping = slot_mapping
        self._device = device
        self._eos_token_ids = eos_token_ids
        self._scale = decoder.config.head_dim**-0.5

    @torch.inference_mode()
    def execute(self, output: SchedulerOutput) -> list[SequenceResult]:
        """Do a step's block copies, compute its tokens, and sample. At least one is scheduled."""
        self._cache.copy_blocks([copy for item in output.scheduled for copy in item.copies])
        batch = build_step_batch(
            output.scheduled,
            block_size=self._cache.block_size,
            slot_mapping=self._slot_mapping,
            device=self._device,
        )
        hidden = self._decoder(batch.token_ids, batch.positions, self._attend(batch.metadata))  # [T, hidden]
        last = batch.metadata.query_start_list[1:]
        ends = [i for i, item in enumerate(batch.items) if item.reaches_end]
        rows = [_sampling_rows(item, self._eos_token_ids) for item in batch.items]
        # One row of logits for each sample: the samples of one prompt all read its last token.
        repeated = [last[i] - 1 for i in ends for _ in rows[i]]
        sampled = iter(())
        if repeated:
            logits = self._decoder.logits(hidden[torch.tensor(repeated, device=self._device)])  # [R, vocab]
            sampled = iter(sample(logits, [row for i in ends for row in rows[i]]))
        return [
            SequenceResult(
                item,
                samples=[next(sampled) for _ in rows[i]] if item.reaches_end else [],
                prompt_logprobs=self._prompt_logprobs(item, hidden, batch, i),
            )
            for i, item in enumerate(batch.items)
        ]

    def _attend(self, metadata: AttentionMetadata) -> AttendFn:
        """What the decoder calls in each layer: store the new keys and values, then attend."""

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            kv_layer = self._cache.layers[layer]
            self._write_kv(kv_layer, key, value, metadata.slot_mapping)
            return self._attention(query, kv_layer, metadata, self._scale)

        return attend

    def _prompt_logprobs(
        self, item: ScheduledSequence, hidden: Tensor, batch: StepBatch, index: int
    ) -> list[TokenLogprobs]:
        """Token p + 1 is predicted by position p, so a step that computes positions `start` to
        `end - 1` tells the log-probabilities of prompt tokens `start + 1` to `end`."""
        wanted = item.request.params.prompt_logprobs
        seq = item.seq
        start = seq.num_computed_tokens
        end = min(start + item.num_tokens, seq.num_prompt_tokens - 1)
        if wanted is None or start >= end:
            return []
        first_row = batch.metadata.query_start_list[index]
        result: list[TokenLogprobs] = []
        # In pieces: the logits of a long prompt would take more memory than the model.
        for at in range(start, end, PROMPT_LOGITS_AT_ONCE):
            stop = min(at + PROMPT_LOGITS_AT_ONCE, end)
            rows = slice(first_row + at - start, first_row + stop - start)
            logits = self._decoder.logits(hidden[rows])  # [stop - at, vocab]
            following = torch.tensor(seq.token_ids[at + 1 : stop + 1])  # [stop - at]
            result += prompt_logprobs(logits, following, wanted)
        return result


def _sampling_rows(item: ScheduledSequence, eos_token_ids: tuple[int, ...]) -> list[SamplingRow]:
    """One row for each token to sample after this sequence."""
    request = item.request
    if not item.reaches_end:
        return []
    if len(request.sequences) < request.params.n:  # the prompt is done: all samples begin here
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
