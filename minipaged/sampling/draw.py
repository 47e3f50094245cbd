"""Drawing one token per row by inverting the cumulative distribution."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minipaged.sampling.filters import relative_weights
from minipaged.transfer import column


def draw(logits: Tensor, uniforms: Sequence[float]) -> Tensor:
    """One token id for each row, drawn from `softmax(logits)`.

    Line the tokens up in the order of their ids, each as wide as its probability; the token over
    the point `u` is drawn. One number per row decides, so a row's token depends on no other row.

    Args:
        logits: `[R, V]`; −inf for tokens that must not be drawn.
        uniforms: one number in [0, 1) for each row.

    Returns:
        Token ids, int64 `[R]`, never one of probability 0. Rows with NaN, or with no finite logit,
        give an arbitrary id within the vocabulary.
    """
    survivors = _survivors(logits)
    if survivors is not None:
        column_ids, logits_of = survivors  # [R, K], [R, K]
        return column_ids.gather(1, _draw(logits_of, uniforms)[:, None]).squeeze(1)  # [R]
    return _draw(logits, uniforms)


def _draw(logits: Tensor, uniforms: Sequence[float]) -> Tensor:
    weights = relative_weights(logits)  # [R, V]
    upto = weights.cumsum(dim=-1)  # [R, V]
    # u × total instead of dividing every weight by the total.
    point = column(uniforms, torch.float64, logits.device)[:, None] * upto[:, -1:]  # [R, 1]
    # The first token whose running sum exceeds the point. A token of weight 0 does not raise the
    # sum, so it is never the first.
    token = torch.searchsorted(upto, point, right=True).clamp(max=logits.shape[1] - 1)  # [R, 1]
    # A GPU adds in parallel, and its running sums may sink by a rounding error where they should
    # stay level. Should that ever select a token of weight 0, take the likeliest one.
    likeliest = logits.argmax(dim=-1, keepdim=True)  # [R, 1]
    return torch.where(weights.gather(1, token) > 0, token, likeliest).squeeze(1)  # [R]


def _survivors(logits: Tensor) -> tuple[Tensor, Tensor] | None:
    """The tokens that filters have left, in the order of their ids: ids and logits, `[R, K]` each.

    Usually they are few, and the exponentials of a whole vocabulary cost more than finding them.
    `None` where they are many, and on a GPU, which would have to wait for their number.
    """
    if logits.device.type != "cpu":
        return None
    alive = logits > float("-inf")  # [R, V]; not NaN, whose row is nonsense in any case
    counts = alive.sum(dim=-1)  # [R]
    most = int(counts.max())
    if most == 0 or most > logits.shape[1] // 16:
        return None
    rows, ids = alive.nonzero(as_tuple=True)  # [N], [N], row by row
    places = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]  # [N], each one's place in its row
    column_ids = torch.zeros(logits.shape[0], most, dtype=torch.int64)  # [R, K]
    column_ids[rows, places] = ids
    kept = torch.full_like(column_ids, float("-inf"), dtype=logits.dtype)  # [R, K]
    kept[rows, places] = logits[rows, ids]
    return column_ids, kept
