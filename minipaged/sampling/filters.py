"""Temperature, min-p, top-k, top-p: from logits to the logits of the tokens that may be drawn.

Each filter takes logits `[R, V]` and one setting for each row, and returns logits `[R, V]` in which
the tokens that fell out are −inf. Rows for which the filter is off are not touched, and no row's
result depends on another row. A row with NaN gives some nonsense for itself; the caller looks for
such rows.
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

    The largest is 1, and nothing overflows. Divided by their sum they are the softmax. float64, so
    that the running sum over a vocabulary of 10**5 tokens is still exact to 10**-11.
    """
    peak = logits.amax(dim=-1, keepdim=True)  # [R, 1]
    return (logits - peak).double().exp()  # [R, V]


def scale_by_temperature(logits: Tensor, temperature: Sequence[float]) -> Tensor:
    """`(logits − max) / temperature`; the largest of each row is then 0.

    With the maximum at 0 before the division, a tiny temperature sends the others to −inf, which is
    their limit; without it, `inf − inf` would give NaN.
    """
    peak = logits.amax(dim=-1, keepdim=True)  # [R, 1]
    return (logits - peak) / positive_column(temperature, logits.dtype, logits.device)[:, None]  # [R, V]


def keep_min_p(logits: Tensor, min_p: Sequence[float]) -> Tensor:
    """Keep tokens whose probability is at least `min_p` times the largest one; 0 is off.

    Nguyen et al., "Turning Up the Heat: Min-p Sampling", 2024. `p ≥ min_p × p_max` is
    `logit − max ≥ log(min_p)`: no softmax is needed.
    """
    if not any(min_p):
        return logits
    floors = [math.log(share) if share > 0 else _NEG_INF for share in min_p]
    floor = column(floors, logits.dtype, logits.device)[:, None]  # [R, 1]
    return logits.masked_fill(logits - logits.amax(dim=-1, keepdim=True) < floor, _NEG_INF)  # [R, V]


def keep_top_k(logits: Tensor, top_k: Sequence[int]) -> Tensor:
    """Keep the `top_k` largest logits, and those equal to the smallest kept one; 0 and −1 are off.

    Fan et al., "Hierarchical Neural Story Generation", 2018. Needs the k-th largest value alone, so
    a partial selection does, and no sort.
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
    """Keep the fewest most likely tokens whose probabilities reach `top_p`; 1 is off.

    Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020. At least one token is
    kept. Among tokens equally likely at the border those with the lower ids are kept.
    """
    rows = [row for row, p in enumerate(top_p) if p < 1.0]
    if not rows:
        return logits
    index = column(rows, torch.int64, logits.device)  # [P]
    share = column([top_p[row] for row in rows], torch.float64, logits.device)  # [P]
    chosen = logits.index_select(0, index)  # [P, V]
    target = share * relative_weights(chosen).sum(dim=-1)  # [P]
    largest, before = _largest_first(chosen, target)  # [P, K] each
    # A token is needed if those before it do not reach the target yet. The first always is.
    num_kept = (before < target[:, None]).sum(dim=-1, keepdim=True)  # [P, 1]
    # Given NaN, nothing is kept; the clamp keeps the gather in bounds.
    threshold = largest.gather(1, (num_kept - 1).clamp(min=0))  # [P, 1]
    keep = largest_entries(chosen, threshold, num_kept)  # [P, V]
    return logits.index_copy(0, index, chosen.masked_fill(~keep, _NEG_INF))  # [R, V]


def largest_entries(logits: Tensor, threshold: Tensor, count: Tensor) -> Tensor:
    """Where the `count` largest entries of each row are: bool `[R, V]`. Of equals, the first.

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
    """The logits in descending order, and the weight before each: `[P, K]` twice, K ≤ V.

    On a CPU a full sort of the vocabulary costs several times a selection of its head, so the head is
    tried first, and used if it reaches every row's `target` `[P]`. On a GPU the sort is cheap, and
    looking at the head would make the device wait.
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
    """The sum before each entry instead of up to it: `[P, K]`."""
    return torch.cat([torch.zeros_like(running_sum[:, :1]), running_sum[:, :-1]], dim=-1)
