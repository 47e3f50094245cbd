"""Checks of exercise 2.3: causal attention over a region."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.expect import expect, expect_close, expect_equal

if TYPE_CHECKING:
    from torch import Tensor

# Importing torch takes seconds, and most exercises of this chapter do not need it. So each test imports it.


def _oracle(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """PyTorch's own attention, with a causal mask."""
    import torch
    from torch.nn import functional as F

    group = query.shape[1] // keys.shape[1]
    key, value = (each.repeat_interleave(group, dim=1).transpose(0, 1) for each in (keys, values))
    seen = torch.ones(len(query), len(keys), dtype=torch.bool).tril(len(keys) - len(query))
    output = F.scaled_dot_product_attention(query.transpose(0, 1), key, value, seen, scale=scale)
    return output.transpose(0, 1)  # [Q, num_heads, head_dim]


def _draw_mask(num_queries: int, num_tokens: int) -> str:
    """Which query sees which key."""
    lines = ["query   position   sees keys"]
    for i in range(num_queries):
        own = num_tokens - num_queries + i
        lines.append(f"{i:<8}{own:<11}{'#' * (own + 1)}{'.' * (num_tokens - own - 1)}")
    return "\n".join(lines)


def _expect_attention(
    got: object,
    want: Tensor,
    asked: tuple[Tensor, Tensor, Tensor, float],
    case: str,
    rule: str,
) -> None:
    """Check a result. `asked` (query, keys, values, scale) serves to find out why it is wrong."""
    from torch import Tensor

    from minipaged.course.ch02.attention import likely_cause

    expect(
        isinstance(got, Tensor), case=case, rule="attention returns a tensor", expected="a tensor", got=got
    )
    assert isinstance(got, Tensor)
    shape = "a row for each query: [Q, num_heads, head_dim]"
    expect_equal(tuple(got.shape), tuple(want.shape), case=f"shape of {case}", rule=shape)
    wrong = ~((got - want).abs() <= 1e-5)  # also where it is NaN
    if bool(wrong.any()):
        row, head, dim = wrong.nonzero()[0].tolist()
        cause = likely_cause(got, *asked)
        shows_mask = cause is None or cause.of_the_mask
        expect(
            False,
            case=case,
            rule=rule if cause is None else cause.rule,
            expected=f"{want[row, head, dim]:.5f} in query row {row}, head {head}, dimension {dim}",
            got=round(got[row, head, dim].item(), 5),
            state=_draw_mask(len(want), len(asked[1])) if shows_mask else "",
        )


def _random(seed: int, *shape: int) -> Tensor:
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.exercise("2.3")
@pytest.mark.parametrize(("num_queries", "num_tokens", "heads"), [(1, 1, 1), (1, 3, 1), (3, 3, 1), (1, 3, 2)])
def test_the_weights_of_a_query_sum_to_one(
    code: ModuleType, num_queries: int, num_tokens: int, heads: int
) -> None:
    import torch

    query, keys = _random(1, num_queries, heads, 4), _random(2, num_tokens, heads, 4)
    got = code.attend_region(query, keys, torch.ones(num_tokens, heads, 4), 0.5)
    shape = (num_queries, heads, 4)
    queries = "1 query" if num_queries == 1 else f"{num_queries} queries"
    case = f"attend_region of {queries} over {num_tokens} tokens whose values are all 1"
    expect_equal(tuple(got.shape), shape, case=f"shape of {case}", rule="a row for each query")
    off = (got - 1).abs().nan_to_num(float("inf"))
    row, head, dim = (off == off.max()).nonzero()[0].tolist()
    sums = "the weights of a query sum to 1 over the keys: the softmax goes over the keys, after the mask"
    none = "the softmax of a query without keys is NaN; each query sees at least the key of its own position"
    expect_close(
        got[row, head, dim].item(),
        1.0,
        case=f"query row {row}, head {head} of {case}",
        within=1e-5,
        rule=none if got[row, head, dim].isnan() else sums,
    )


@pytest.mark.exercise("2.3")
@pytest.mark.parametrize(
    ("num_queries", "num_tokens", "heads", "kv_heads", "rule"),
    [
        (1, 1, 1, 1, "one token sees itself: its own value comes back"),
        (1, 2, 1, 1, "a decode step of a sequence of two tokens: the last one sees both"),
        (2, 2, 1, 1, "a prompt of two tokens: the first one sees itself, the second one both"),
        (1, 6, 1, 1, "a decode step: the last token sees all tokens"),
        (5, 5, 1, 1, "a prompt: each token sees itself and those before it"),
        (3, 7, 1, 1, "a chunk of a prompt: its first query is at position 4, and sees keys 0 to 4"),
        (1, 6, 4, 2, "query heads 0 and 1 read KV head 0, heads 2 and 3 read KV head 1"),
        (4, 6, 6, 2, "a group of three query heads for each KV head"),
        (3, 3, 4, 1, "all query heads read the only KV head"),
    ],
)
def test_against_pytorch(
    code: ModuleType, num_queries: int, num_tokens: int, heads: int, kv_heads: int, rule: str
) -> None:
    query = _random(1, num_queries, heads, 8)
    keys, values = _random(2, num_tokens, kv_heads, 8), _random(3, num_tokens, kv_heads, 8)
    _expect_attention(
        code.attend_region(query, keys, values, 0.4),
        _oracle(query, keys, values, 0.4),
        (query, keys, values, 0.4),
        f"attend_region: query {[num_queries, heads, 8]}, keys and values {[num_tokens, kv_heads, 8]}",
        rule,
    )


@pytest.mark.exercise("2.3")
@given(
    num_queries=st.integers(1, 4),
    cached=st.integers(0, 5),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    head_dim=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_any_shape(
    code: ModuleType, num_queries: int, cached: int, kv_heads: int, group: int, head_dim: int, seed: int
) -> None:
    num_tokens = cached + num_queries
    query = _random(seed, num_queries, kv_heads * group, head_dim)
    keys, values = (_random(seed + n, num_tokens, kv_heads, head_dim) for n in (10, 20))
    scale = head_dim**-0.5
    _expect_attention(
        code.attend_region(query, keys, values, scale),
        _oracle(query, keys, values, scale),
        (query, keys, values, scale),
        f"{num_queries} queries on top of {cached} cached tokens, {kv_heads} KV heads, group of {group}, "
        f"head_dim {head_dim}",
        "softmax(scale · query · key) over the keys up to the query's own position, times the values",
    )


@pytest.mark.exercise("2.3")
def test_all_at_once_or_one_by_one(code: ModuleType) -> None:
    import torch

    query, keys, values = _random(1, 6, 4, 8), _random(2, 6, 2, 8), _random(3, 6, 2, 8)
    before = [each.clone() for each in (query, keys, values)]
    whole = code.attend_region(query, keys, values, 0.3)
    for position in range(6):
        asked = query[position : position + 1], keys[: position + 1], values[: position + 1], 0.3
        _expect_attention(
            code.attend_region(*asked),
            whole[position : position + 1],
            asked,
            f"position {position} of a prompt of 6, computed alone over keys 0 to {position}",
            "with a cache, one step for each token gives the same as the whole prompt at once",
        )
    unchanged = all(torch.equal(a, b) for a, b in zip(before, (query, keys, values), strict=True))
    expect(
        unchanged,
        case="the arguments after attend_region",
        rule="keys and values are the cache itself: attention must not write into them",
    )
