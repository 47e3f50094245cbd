"""Candidates: the likeliest next tokens of beams, from raw logits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from minipaged.sampling.logprob_tensors import gather_logprobs
from minipaged.transfer import Queued, queued_together

RankedTokens = tuple[tuple[int, float], ...]
"""Pairs of a token id and its log-probability, likeliest first."""


@torch.inference_mode()
def queue_likeliest_tokens(logits: Tensor, counts: Sequence[int]) -> Queued[list[RankedTokens]]:
    """The likeliest next tokens of each row, and their log-probabilities.

    Args:
        logits: float32 `[R, V]`, raw; not changed.
        counts: how many tokens to report for each of the R rows; at least 1.

    Returns:
        One entry for each row. Equally likely tokens are in order of their ids. A row has fewer tokens
        than asked for if the vocabulary is smaller, or if tokens are impossible (a logit of −inf). It has
        none if the row holds NaN or +inf, or no finite logit.
    """
    if not counts:
        return queued_together([], logits.device)
    anything = torch.zeros(len(counts), dtype=torch.int64, device=logits.device)  # [R]
    found = gather_logprobs(logits, range(len(counts)), anything, max(counts)).queue(counts)
    return Queued(
        found.packed,
        lambda on_host: [
            tuple(entry for entry in row.top if math.isfinite(entry[1])) for row in found.unpack(on_host)
        ],
    )
