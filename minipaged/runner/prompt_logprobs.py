"""Log-probabilities of prompt tokens, for the requests that ask for them.

Position p predicts token p + 1. So a step that computes positions `start` to `end - 1` gives the
log-probabilities of prompt tokens `start + 1` to `end`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from minipaged.model.decoder import Decoder
from minipaged.runner.step_batch import StepBatch
from minipaged.sampling.logprob_tensors import queue_prompt_logprobs
from minipaged.sampling.logprobs import TokenLogprobs
from minipaged.sampling.sampler import sampling_device
from minipaged.transfer import Queued, queued_together

ROWS_AT_ONCE = 128
"""How many rows of logits are computed at once. All rows of a long prompt could need more memory than the
model."""


@dataclass(frozen=True)
class PromptPositions:
    """Consecutive positions of one prompt that a step computes. Each predicts the next prompt token.

    Attributes:
        index: the index of the prompt's sequence in the step.
        rows: the rows of these positions in the step.
        following: the prompt tokens that they predict.
        num_top: how many of the likeliest tokens to report for each position.
    """

    index: int
    rows: slice
    following: list[int]
    num_top: int


def find_prompt_positions(batch: StepBatch) -> list[PromptPositions]:
    """The positions of a step whose log-probabilities are asked for, at most `ROWS_AT_ONCE` per entry."""
    found: list[PromptPositions] = []
    for index, item in enumerate(batch.items):
        num_top = item.request.params.prompt_logprobs
        if num_top is None:
            continue
        seq = item.seq
        start = seq.num_computed_tokens
        end = min(start + item.num_tokens, seq.num_prompt_tokens - 1)
        first_row = batch.rows[index].stop - item.num_tokens
        for at in range(start, end, ROWS_AT_ONCE):
            stop = min(at + ROWS_AT_ONCE, end)
            rows = slice(first_row + at - start, first_row + stop - start)
            following = seq.token_ids[at + 1 : stop + 1]
            found.append(PromptPositions(index, rows, following, num_top))
    return found


def queue_all_prompt_logprobs(
    decoder: Decoder, hidden: Tensor, positions: list[PromptPositions]
) -> Queued[list[list[TokenLogprobs]]]:
    """Queue the log-probabilities of prompt tokens.

    Args:
        decoder: computes the logits.
        hidden: `[T or more, hidden]`, the step's hidden states.
        positions: the result of `find_prompt_positions`.

    Returns:
        One list for each entry of `positions`, with one element for each of its rows.
    """
    where = sampling_device(hidden.device)
    pieces = [
        queue_prompt_logprobs(decoder.logits(hidden[each.rows]).to(where), each.following, each.num_top)
        for each in positions
    ]
    return queued_together(pieces, where)
