"""StepBatch: the tokens of one step on the host, one sequence after the other, without padding.

`LogitsRows` says which of these tokens need logits. A sequence that reaches its end in this step samples its
next token. At the end of a prompt all samples of the request begin, so the logits of the prompt's last token
are used once for each sample. No token is sampled for a beam. The beam search takes the likeliest next
tokens from the beam's logits.
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
    def is_decode(self) -> bool:
        """Whether it computes one token of each sequence."""
        return len(self.token_ids) == len(self.items)

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
    items = decodes_first(scheduled)
    ends = [item.seq.num_computed_tokens + item.num_tokens for item in items]
    starts = [0] * len(items) if from_start else [item.seq.num_computed_tokens for item in items]
    token_ids: list[int] = []
    for item, start, end in zip(items, starts, ends, strict=True):
        token_ids += item.seq.token_ids[start:end]
    first = np.array(starts, dtype=np.int64)  # [S]
    lengths = np.array(ends, dtype=np.int64) - first  # [S]
    rows = np.zeros(len(items) + 1, dtype=np.int64)  # [S + 1]
    np.cumsum(lengths, out=rows[1:])
    positions = np.arange(len(token_ids)) + np.repeat(first - rows[:-1], lengths)  # [T]
    return StepBatch(
        items=items,
        token_ids=np.array(token_ids, dtype=np.int64),
        positions=positions,
        spans=list(zip(starts, ends, strict=True)),
        query_start_loc=rows.astype(np.int32),
    )


def decodes_first(scheduled: Sequence[ScheduledSequence]) -> list[ScheduledSequence]:
    """The sequences in the order of the batch: those with one token to compute come first."""
    decodes = [item for item in scheduled if item.num_tokens == 1]
    return decodes + [item for item in scheduled if item.num_tokens > 1]


@dataclass(frozen=True)
class LogitsRows:
    """The rows of logits that a step needs: R rows to sample from, then B rows of beams.

    Attributes:
        sequences: for each row, the index of its sequence in the step.
        last: int64 `[R + B]`, for each row, the index of its sequence's last token in the step.
        samples: for each of the R rows, the number of its sample within its request.
        num_candidates: how many next tokens each of the B beams needs.
    """

    sequences: list[int]
    last: npt.NDArray[np.int64]
    samples: list[int]
    num_candidates: list[int]


def find_logits_rows(batch: StepBatch) -> LogitsRows:
    """The rows of logits that a step needs."""
    sampled: list[int] = []
    samples: list[int] = []
    beams: list[int] = []
    num_candidates: list[int] = []
    for i, (item, (_, end)) in enumerate(zip(batch.items, batch.spans, strict=True)):
        request, seq = item.request, item.seq
        if end < len(seq.token_ids):
            continue
        if request.search is not None:
            beams.append(i)
            num_candidates.append(request.search.num_candidates)
            continue
        # Before the samples fork, there is one sequence. The first token of every sample comes from it.
        of_item = (seq.index,) if request.has_forked else range(request.params.n)
        samples += of_item
        sampled += [i] * len(of_item)
    sequences = sampled + beams
    ends = batch.query_start_loc[1:]  # [S]
    last = ends[np.array(sequences, dtype=np.int64)].astype(np.int64) - 1  # [R + B]
    return LogitsRows(sequences, last, samples, num_candidates)


def sampling_rows(batch: StepBatch, rows: LogitsRows, eos_token_ids: Sequence[int]) -> list[SamplingRow]:
    """How the first R rows are sampled. The forward pass does not need this, and may run at the same time.

    Args:
        batch: the step.
        rows: its rows of logits.
        eos_token_ids: the tokens that must not be sampled before `min_tokens`.
    """
    items = [batch.items[index] for index in rows.sequences]
    return [
        _sampling_row(item.request, item.seq, sample, eos_token_ids)
        for item, sample in zip(items, rows.samples, strict=False)
    ]


def _sampling_row(
    request: Request, seq: TokenSequence, sample_index: int, eos_token_ids: Sequence[int]
) -> SamplingRow:
    params = request.params
    banned: tuple[int, ...] = ()
    if params.min_tokens and seq.num_output_tokens < params.min_tokens:
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
