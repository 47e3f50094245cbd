"""StepBatch: the tokens of one step, one sequence after the other, without padding. On the host.

`LogitsRows` says which of these tokens need logits. A sequence that reaches its end in this step samples its
next token. At the end of a prompt all samples of the request begin, so the logits of the prompt's last token
are used once for each sample. A beam samples nothing: its logits give the beam search the likeliest next
tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from minipaged.request import Request
from minipaged.request import Sequence as TokenSequence
from minipaged.sampling.sampler import SamplingRow
from minipaged.sampling.uniform import uniform
from minipaged.scheduler.scheduler_output import ScheduledSequence


@dataclass(frozen=True)
class StepBatch:
    """The input of one forward pass over T tokens of S sequences.

    Attributes:
        items: the S scheduled sequences, in the order of their tokens: decodes first.
        token_ids: int64 `[T]`.
        positions: int64 `[T]`, each token's position in its own sequence.
        spans: for each sequence, the first position to compute, and one past the last.
        query_start_loc: int32 `[S + 1]`, begins with 0 and ends with T. The tokens of sequence s are rows
            `query_start_loc[s] : query_start_loc[s + 1]`.
    """

    items: list[ScheduledSequence]
    token_ids: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    spans: list[tuple[int, int]]
    query_start_loc: npt.NDArray[np.int32]

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether any of its requests asks for the log-probabilities of its prompt."""
        return any(item.request.params.prompt_logprobs is not None for item in self.items)

    @cached_property
    def rows(self) -> list[slice]:
        """The rows of each sequence, as slices."""
        return [slice(*each) for each in pairwise(self.query_start_loc.tolist())]


def build_step_batch(scheduled: Sequence[ScheduledSequence], *, from_start: bool = False) -> StepBatch:
    """Put the tokens of a step's sequences one after the other.

    Args:
        scheduled: the sequences that the step computes.
        from_start: whether to compute each sequence from its first token, even if that was computed
            before. An engine that keeps no keys and values needs this.
    """
    items = sorted(scheduled, key=lambda item: item.num_tokens > 1)  # stable: decodes first
    spans = [
        (0 if from_start else i.seq.num_computed_tokens, i.seq.num_computed_tokens + i.num_tokens)
        for i in items
    ]
    token_ids: list[int] = []
    for item, (start, end) in zip(items, spans, strict=True):
        token_ids += item.seq.token_ids[start:end]
    starts = np.cumsum([0] + [end - start for start, end in spans], dtype=np.int32)  # [S + 1]
    positions = np.concatenate([np.arange(*span, dtype=np.int64) for span in spans])  # [T]
    return StepBatch(
        items=items,
        token_ids=np.array(token_ids, dtype=np.int64),
        positions=positions,
        spans=spans,
        query_start_loc=starts,
    )


@dataclass(frozen=True)
class LogitsRows:
    """The rows of logits that a step needs: R rows to sample from, then B rows of beams.

    Attributes:
        sequences: for each row, the index of its sequence in the step.
        last: int64 `[R + B]`, for each row, the index of its sequence's last token in the step.
        sampling_rows: how the first R rows are sampled.
        num_candidates: how many next tokens each of the B beams needs.
    """

    sequences: list[int]
    last: npt.NDArray[np.int64]
    sampling_rows: list[SamplingRow]
    num_candidates: list[int]


def find_logits_rows(batch: StepBatch, eos_token_ids: Sequence[int]) -> LogitsRows:
    """The rows of logits that a step needs.

    Args:
        batch: the step.
        eos_token_ids: the tokens that must not be sampled before `min_tokens`.
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
    # Before the samples fork there is one sequence. It samples the first token of each of them.
    indices = [seq.index] if request.has_forked else range(request.params.n)
    return [_sampling_row(request, seq, index, eos_token_ids) for index in indices]


def _sampling_row(
    request: Request, seq: TokenSequence, sample_index: int, eos_token_ids: Sequence[int]
) -> SamplingRow:
    params = request.params
    banned: tuple[int, ...] = ()
    if seq.num_output_tokens < params.min_tokens:
        banned = (*eos_token_ids, *params.stop_ids)
    number = 0.0  # greedy sampling needs no random number
    if not params.greedy:
        number = uniform(request.sampling_seed, sample_index, seq.num_output_tokens)
    return SamplingRow(
        params=params,
        prompt_token_ids=request.prompt_token_ids,
        output_token_ids=seq.token_ids[seq.num_prompt_tokens :] if params.has_penalties else (),
        uniform=number,
        banned_token_ids=banned,
    )
