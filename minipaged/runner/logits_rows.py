"""LogitsRows: the few tokens of a step whose logits are computed, and what each is for.

A sequence that reaches its end in this step samples its next token. Where a prompt ends, all samples of
the request begin, so its last token's logits are read once for each of them. A beam draws nothing: its
logits give the search the likeliest next tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from minipaged.request import Request
from minipaged.request import Sequence as TokenSequence
from minipaged.runner.step_batch import StepBatch
from minipaged.sampling.sampler import SamplingRow
from minipaged.sampling.uniform import uniform
from minipaged.scheduler.scheduler_output import ScheduledSequence


@dataclass(frozen=True)
class LogitsRows:
    """R rows to sample from, then B rows of beams.

    Attributes:
        sequences: for each row, which of the step's sequences it follows.
        last: int64 `[R + B]`, for each row, that sequence's last token among the step's tokens.
        sampling_rows: how the first R are sampled.
        num_candidates: how many next tokens each of the B beams wants.
    """

    sequences: list[int]
    last: npt.NDArray[np.int64]
    sampling_rows: list[SamplingRow]
    num_candidates: list[int]


def find_logits_rows(batch: StepBatch, eos_token_ids: Sequence[int]) -> LogitsRows:
    """The rows that a step needs.

    Args:
        batch: the step.
        eos_token_ids: what may not be sampled before `min_tokens`.
    """
    sampled: list[int] = []
    rows: list[SamplingRow] = []
    beams: list[int] = []
    num_candidates: list[int] = []
    for i, item in enumerate(batch.items):
        if not item.reaches_end:
            continue
        search = item.request.search
        if search is not None:
            beams.append(i)
            num_candidates.append(search.num_candidates)
            continue
        of_item = _sampling_rows(item, eos_token_ids)
        sampled += [i] * len(of_item)
        rows += of_item
    sequences = sampled + beams
    ends = batch.query_start_loc[1:]  # [S]
    last = ends[np.array(sequences, dtype=np.int64)].astype(np.int64) - 1  # [R + B]
    return LogitsRows(sequences, last, rows, num_candidates)


def _sampling_rows(item: ScheduledSequence, eos_token_ids: Sequence[int]) -> list[SamplingRow]:
    request, seq = item.request, item.seq
    # Before the samples fork there is one sequence, which samples for all of them.
    indices = [seq.index] if request.has_forked else range(request.params.n)
    return [_sampling_row(request, seq, index, eos_token_ids) for index in indices]


def _sampling_row(
    request: Request, seq: TokenSequence, sample_index: int, eos_token_ids: Sequence[int]
) -> SamplingRow:
    params = request.params
    banned: tuple[int, ...] = ()
    if seq.num_output_tokens < params.min_tokens:
        banned = (*eos_token_ids, *params.stop_ids)
    number = 0.0  # greedy sampling draws none
    if not params.greedy:
        number = uniform(request.sampling_seed, sample_index, seq.num_output_tokens)
    return SamplingRow(
        params=params,
        prompt_token_ids=request.prompt_token_ids,
        output_token_ids=seq.token_ids[seq.num_prompt_tokens :] if params.has_penalties else (),
        uniform=number,
        banned_token_ids=banned,
    )
