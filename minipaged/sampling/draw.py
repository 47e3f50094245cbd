"""Drawing one token per row by inverting the cumulative distribution."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minipaged.sampling.filters import relative_weights
from minipaged.transfer import column


def draw(logits: Tensor, uniforms: Sequence[float]) -> Tensor:
    """One token id for each row, drawn from `softmax(logits)`.

    The interval [0, 1) is divided among the tokens, in order of their ids. Each token gets a part whose
    width is its probability. The token whose part contains the row's uniform number is drawn. So a row's
    token depends on no other row.

    Args:
        logits: `[R, V]`; −inf for tokens that must not be drawn.
        uniforms: one number in [0, 1) for each row.

    Returns:
        Token ids, int64 `[R]`. A token of probability 0 is never drawn. A row that holds NaN, or no finite
        logit, gets an arbitrary id of the vocabulary.
    """
    survivors = _survivors(logits)
    if survivors is not None:
        column_ids, logits_of = survivors  # [R, K], [R, K]
        return column_ids.gather(1, _draw(logits_of, uniforms)[:, None]).squeeze(1)  # [R]
    return _draw(logits, uniforms)


def _draw(logits: Tensor, uniforms: Sequence[float]) -> Tensor:
    weights = relative_weights(logits)  # [R, V]
    upto = weights.cumsum(dim=-1)  # [R, V]
    # The weights are not divided by their total. The uniform number is multiplied by it instead.
    point = column(uniforms, torch.float64, logits.device)[:, None] * upto[:, -1:]  # [R, 1]
    # The first token whose running sum exceeds the point. A token of weight 0 does not raise the
    # running sum, so it is never this token.
    token = torch.searchsorted(upto, point, right=True).clamp(max=logits.shape[1] - 1)  # [R, 1]
    # A GPU adds in parallel, so a running sum may fall by a rounding error where it should stay equal. If
    # that selects a token of weight 0, take the likeliest token instead.
    likeliest = logits.argmax(dim=-1, keepdim=True)  # [R, 1]
    return torch.where(weights.gather(1, token) > 0, token, likeliest).squeeze(1)  # [R]


def _survivors(logits: Tensor) -> tuple[Tensor, Tensor] | None:
    """The tokens that the filters have kept, in order of their ids: ids and logits, `[R, K]` each.

    Usually few tokens are kept. Then finding them is faster than computing exponentials for the whole
    vocabulary. The result is `None` if many tokens are kept. It is also `None` on a GPU, where the host would
    have to wait for the number of kept tokens.
    """
    if logits.device.type != "cpu":
        return None
    alive = logits > float("-inf")  # [R, V]; NaN is left out, since its row has no valid result anyway
    counts = alive.sum(dim=-1)  # [R]
    most = int(counts.max())
    if most == 0 or most > logits.shape[1] // 16:
        return None
    rows, ids = alive.nonzero(as_tuple=True)  # [N], [N], row by row
    places = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]  # [N], each token's place in its row
    column_ids = torch.zeros(logits.shape[0], most, dtype=torch.int64)  # [R, K]
    column_ids[rows, places] = ids
    kept = torch.full_like(column_ids, float("-inf"), dtype=logits.dtype)  # [R, K]
    kept[rows, places] = logits[rows, ids]
    return column_ids, kept
