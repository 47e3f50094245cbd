"""Drawing one token per row by inverting the cumulative distribution."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minipaged.sampling.columns import column
from minipaged.sampling.filters import relative_weights


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
