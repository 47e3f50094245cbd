"""Temperature, min-p, top-k and top-p: filters on logits, which choose the tokens that may be drawn.

Each filter takes logits `[R, V]` and one setting for each row. It returns logits `[R, V]` in which the
removed tokens are −inf. It does not change the rows whose setting turns it off. The result of a row never
depends on another row. The result of a row that holds NaN is meaningless; the caller must detect such rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from minipaged.transfer import column, positive_column

_NEG_INF = float("-inf")
_NUCLEUS_GUESS = 1024  # tokens; the nucleus of a trained model is nearly always smaller


def relative_weights(logits: Tensor) -> Tensor:
    """Probabilities relative to the most likely token: `exp(logit − max)`, float64 `[R, V]`.

    The largest weight is 1, and nothing overflows. The weights divided by their sum are the softmax. They
    are float64, so that the running sum over a vocabulary of 10**5 tokens is still exact to 10**-11.
    """
    peak = logits.amax(dim=-1, keepdim=True)  # [R, 1]
    return (logits - peak).double().exp()  # [R, V]


def scale_by_temperature(logits: Tensor, temperature: Sequence[float]) -> Tensor:
    """`(logits − max) / temperature`. The largest logit of each row becomes 0.

    The maximum is subtracted before the division. So a tiny temperature sends all other logits to −inf,
    which is their limit. In the other order, logits could become inf, and `inf − inf` is NaN.
    """
    peak = logits.amax(dim=-1, keepdim=True)  # [R, 1]
    return (logits - peak) / positive_column(temperature, logits.dtype, logits.device)[:, None]  # [R, V]


def keep_min_p(logits: Tensor, min_p: Sequence[float]) -> Tensor:
    """Keep tokens whose probability is at least `min_p` times the largest one; 0 turns this off.

    Nguyen et al., "Turning Up the Heat: Min-p Sampling", 2024. The condition `p ≥ min_p × p_max` is the
    same as `logit − max ≥ log(min_p)`, so no softmax is needed.
    """
    if not any(min_p):
        return logits
    floors = [math.log(share) if share > 0 else _NEG_INF for share in min_p]
    floor = column(floors, logits.dtype, logits.device)[:, None]  # [R, 1]
    return logits.masked_fill(logits - logits.amax(dim=-1, keepdim=True) < floor, _NEG_INF)  # [R, V]


def keep_top_k(logits: Tensor, top_k: Sequence[int]) -> Tensor:
    """Keep the `top_k` largest logits, and all logits equal to the smallest of them; 0 or −1 turns this off.

    Fan et al., "Hierarchical Neural Story Generation", 2018. Only the k-th largest value is needed, so a
    partial selection is enough, without a full sort.
    """
    vocab_size = logits.shape[1]
    rows = [row for row, k in enumerate(top_k) if 0 < k < vocab_size]
    if not rows:
        return logits
    index = column(rows, torch.int64, logits.device)  # [P]
    last_kept = column([top_k[row] - 1 for row in rows], torch.int64, logits.device)  # [P]
    chosen = logits.index_select(0, index)  # [P, V]
    largest = chosen.topk(max(top_k[row] for row in rows), dim=-1).values  # [P, k], descending
    threshold = largest.gather(1, last_kept[:, None])  # [P, 1]
    return logits.index_copy(0, index, chosen.masked_fill(chosen < threshold, _NEG_INF))  # [R, V]


def keep_top_p(logits: Tensor, top_p: Sequence[float]) -> Tensor:
    """Keep the likeliest tokens, in order, until their probabilities add up to `top_p`; 1 turns this off.

    Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020. At least one token is kept. If
    only some of several equally likely tokens are needed, those with the lowest ids are kept.
    """
    rows = [row for row, p in enumerate(top_p) if p < 1.0]
    if not rows:
        return logits
    index = column(rows, torch.int64, logits.device)  # [P]
    share = column([top_p[row] for row in rows], torch.float64, logits.device)  # [P]
    chosen = logits.index_select(0, index)  # [P, V]
    target = share * relative_weights(chosen).sum(dim=-1)  # [P]
    largest, before = _largest_first(chosen, target)  # [P, K] each
    # A token is kept if the tokens before it do not reach the target. The first is always kept.
    num_kept = (before < target[:, None]).sum(dim=-1, keepdim=True)  # [P, 1]
    # In a row with NaN no token is kept, and the clamp keeps the gather in bounds.
    threshold = largest.gather(1, (num_kept - 1).clamp(min=0))  # [P, 1]
    keep = largest_entries(chosen, threshold, num_kept)  # [P, V]
    return logits.index_copy(0, index, chosen.masked_fill(~keep, _NEG_INF))  # [R, V]


def largest_entries(logits: Tensor, threshold: Tensor, count: Tensor) -> Tensor:
    """A mask of the `count` largest entries of each row: bool `[R, V]`. Ties go to the first entries.

    Args:
        logits: `[R, V]`.
        threshold: `[R, 1]`, the smallest of the `count` largest values.
        count: int64 `[R, 1]`.
    """
    above = logits > threshold  # [R, V]
    tied = logits == threshold  # [R, V]
    room = count - above.sum(dim=-1, keepdim=True)  # [R, 1]
    return above | (tied & (tied.cumsum(dim=-1) <= room))  # [R, V]


def _largest_first(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The largest K logits in descending order, and the sum of the weights before each; both are `[P, K]`.

    On a CPU, a full sort of the vocabulary costs several times as much as selecting its largest entries.
    So K is small at first. If these entries do not reach every row's `target` `[P]`, K is V. On a GPU the
    sort is cheap, and checking the target would make the host wait, so K is always V.
    """
    vocab_size = logits.shape[1]
    if logits.device.type == "cpu" and vocab_size > _NUCLEUS_GUESS:
        head = logits.topk(_NUCLEUS_GUESS, dim=-1).values  # [P, K]
        reached = relative_weights(head).cumsum(dim=-1)  # [P, K]
        if bool((reached[:, -1] >= target).all()):
            return head, _shifted(reached)
    ordered = logits.sort(dim=-1, descending=True).values  # [P, V]
    return ordered, _shifted(relative_weights(ordered).cumsum(dim=-1))


def _shifted(running_sum: Tensor) -> Tensor:
    """Turn running sums that include each entry into running sums that exclude it: `[P, K]`."""
    return torch.cat([torch.zeros_like(running_sum[:, :1]), running_sum[:, :-1]], dim=-1)
