"""The results of attention with one typical mistake, so that a message can name the mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Cause:
    """Why a result is wrong.

    Attributes:
        rule: what the result looks like, and what would be right.
        of_the_mask: whether the mistake is in the mask: which query attends to which key.
    """

    rule: str
    of_the_mask: bool = False


def likely_cause(got: Tensor, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Cause | None:
    """The typical mistake that gives exactly this result; `None` if there is none, or more than one.

    Args:
        got: `[Q, num_heads, head_dim]`; wrong.
        query, keys, values, scale: as in `attend_region`.
    """
    found = {
        cause
        for cause, result in _with_one_mistake(query, keys, values, scale)
        if result.shape == got.shape and torch.allclose(got, result, atol=1e-5, equal_nan=True)
    }
    return found.pop() if len(found) == 1 else None


def _with_one_mistake(
    query: Tensor, keys: Tensor, values: Tensor, scale: float
) -> Iterator[tuple[Cause, Tensor]]:
    num_queries, num_tokens = len(query), len(keys)
    group = query.shape[1] // keys.shape[1]
    scores = torch.einsum("qhd,khd->hqk", query, _read(keys, group))  # [num_heads, Q, L], not scaled
    position = torch.arange(num_tokens)
    own = position[num_tokens - num_queries :, None]  # [Q, 1]
    seen = position <= own  # [Q, L]

    def result(
        scores: Tensor,
        seen: Tensor = seen,
        softmax: Callable[[Tensor], Tensor] = lambda masked: masked.softmax(-1),
    ) -> Tensor:
        masked = scores.masked_fill(~seen, float("-inf"))
        return torch.einsum("hqk,khd->qhd", softmax(masked), _read(values, group))

    yield Cause("this is the result with scale 1: multiply the scores by `scale`"), result(scores)
    divided = "the scores are divided by `scale` here: multiply them by it"
    yield Cause(divided), result(scores / scale)
    scores = scores * scale
    for dim, name in ((0, "heads"), (1, "queries")):
        over = f"the softmax goes over the {name} here: the weights of a query sum to 1 over the keys"
        yield Cause(over), result(scores, softmax=lambda masked, dim=dim: masked.softmax(dim))
    for rule, other in (
        ("this is the result without a mask: a query must not see a key after its own position", seen | True),
        (
            "this is the result of queries that begin at position 0: the first one has position L − Q",
            position <= torch.arange(num_queries)[:, None],
        ),
        ("a query also sees the key of its own position", position < own),
        ("a query must not see the key after its own position", position <= own + 1),
    ):
        yield Cause(rule, of_the_mask=True), result(scores, other)
    zero = "a masked score is −inf: with 0, the key keeps a weight"
    yield Cause(zero, of_the_mask=True), result(scores * seen, seen | True)
    turns = "query head h reads KV head h // group: here they take turns, 0, 1, … and 0, 1, … again"
    for other_keys, other_values in ((True, True), (True, False), (False, True)):
        read = _read(values, group, in_turns=other_values)
        asked = torch.einsum("qhd,khd->hqk", query, _read(keys, group, in_turns=other_keys)) * scale
        weights = asked.masked_fill(~seen, float("-inf")).softmax(-1)
        yield Cause(turns), torch.einsum("hqk,khd->qhd", weights, read)
    after = "the mask comes before the softmax: the weights that it leaves must sum to 1"
    unmasked = scores.softmax(-1) * seen
    yield Cause(after, of_the_mask=True), torch.einsum("hqk,khd->qhd", unmasked, _read(values, group))


def _read(kept: Tensor, group: int, *, in_turns: bool = False) -> Tensor:
    """Keys or values for each query head, `[L, num_heads, head_dim]`; in the wrong order with `in_turns`."""
    return kept.repeat(1, group, 1) if in_turns else kept.repeat_interleave(group, dim=1)
