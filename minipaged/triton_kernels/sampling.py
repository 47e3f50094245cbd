"""draw_tokens: temperature, min-p, top-k, top-p and the draw, in one kernel that sorts nothing.

`sampling/filters.py` and `sampling/draw.py` define what is computed. This kernel computes the same in another
way. The *distance* of a token from the likeliest one is `(max − logit) / temperature`. Each filter keeps the
tokens up to some distance. So a filter is one number, and the search for that number needs counts and sums
instead of an order.

One program computes each row, in three steps:
1. Read the row, count how many distances fall into each of many narrow bins, and add up the weights. (The
   row's maximum is already known.)
2. Read the row again, and copy the likeliest tokens to a list. These are the tokens of the nearest bins, as
   many bins as have at most `CANDIDATES` tokens together.
3. Search for the distances of top-k and top-p by bisection, and draw. This reads only the list if the list is
   sure to hold all tokens that the filters keep. Otherwise it reads the whole row again and again. So a
   filter that keeps more tokens is slow, but exact.

Without filters the first two steps are left out. So a row is read at most four times, including the search
for its maximum, unless filters keep more tokens than the list holds.
"""

# pyright: reportCallIssue=false, reportOperatorIssue=false, reportAttributeAccessIssue=false
# (A launch takes options that are not parameters of the kernel.)

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from minipaged.sampling.params import SamplingParams
from minipaged.transfer import column, positive_column, to_device

CANDIDATES = 1024
"""The most tokens that the list holds."""
BINS = 2048
BINS_PER_UNIT = 64.0
"""How many bins there are for each unit of distance. The bins cover the first 32 units. Weights of more
distant tokens are below 2e-14 of the largest weight."""
TILE = 4096
"""How many numbers a program reads at once."""
FARTHEST = 0x7F800000
"""The bits of an infinite distance. No distance is negative, so distances have the same order as their
bits."""


@triton.jit
def _distances(logits, length, start, peak, temperature, TILE: tl.constexpr):
    """The distances of a tile, and their bits: float32 and int32 [TILE]. Past the end they are infinite."""
    at = start + tl.arange(0, TILE)
    numbers = tl.load(logits + at, mask=at < length, other=float("-inf"))
    distance = (peak - numbers) / temperature
    # A token with a NaN logit gets an infinite distance, so it is never drawn. A zero may be -0.0, and the
    # bits of -0.0 would be out of order.
    distance = tl.where(distance >= 0.0, tl.abs(distance), float("inf"))
    return distance, distance.to(tl.int32, bitcast=True)


@triton.jit
def _within(logits, length, peak, temperature, limit, TILE: tl.constexpr):
    """How many tokens are nearer than a limit, the sum of their weights, and how many are at the limit.

    The limit is given as bits.
    """
    num_nearer, num_at = 0, 0
    total = tl.full([], 0.0, tl.float64)
    for start in range(0, length, TILE):
        distance, bits = _distances(logits, length, start, peak, temperature, TILE)
        num_nearer += tl.sum((bits < limit).to(tl.int32))
        num_at += tl.sum((bits == limit).to(tl.int32))
        total += tl.sum(tl.where(bits < limit, tl.exp(-distance), 0.0)).to(tl.float64)
    return num_nearer, total, num_at


@triton.jit
def _weight_at(limit):
    """The weight of a token at a limit given as bits."""
    return tl.exp(-limit.to(tl.float32, bitcast=True)).to(tl.float64)


@triton.jit
def sample_kernel(
    logits,  # float32 [N, V]
    rows,  # int64 [R], the rows of logits to draw from
    settings,  # float64 [R, 3]: top-p, the random number, the greatest distance that min-p keeps
    temperatures,  # float32 [R]
    top_k,  # int64 [R], 0: off
    likeliest,  # int64 [N], a token with the largest logit of each row
    tokens,  # int64 [R], the result
    listed_logits,  # float32 [R, CANDIDATES], for the program's own use
    listed_tokens,  # int32 [R, CANDIDATES], also for the program's own use
    vocab_size,
    row_stride,
    CANDIDATES: tl.constexpr,
    BINS: tl.constexpr,
    BINS_PER_UNIT: tl.constexpr,
    FARTHEST: tl.constexpr,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    source_row = tl.load(rows + row)
    whole = logits + source_row * row_stride
    token = tl.load(likeliest + source_row)
    peak = tl.load(whole + token)
    temperature = tl.load(temperatures + row)
    top_p, uniform = tl.load(settings + 3 * row), tl.load(settings + 3 * row + 1)
    reach = tl.load(settings + 3 * row + 2).to(tl.float32)
    k = tl.load(top_k + row)
    # The greatest distance that is kept, as bits. A token at an infinite distance has no weight, so it is
    # never kept.
    limit = tl.minimum(reach.to(tl.int32, bitcast=True), FARTHEST - 1)
    total = tl.full([], 0.0, tl.float64)
    list_logits, list_tokens = listed_logits + row * CANDIDATES, listed_tokens + row * CANDIDATES
    source, length = whole, vocab_size
    is_listed = tl.full([], 0, tl.int1)

    if (k > 0) | (top_p < 1.0) | (limit < FARTHEST - 1):
        # 1. Bins.
        histogram = tl.zeros([BINS], tl.int32)
        num_kept = 0
        for start in range(0, vocab_size, TILE):
            distance, bits = _distances(whole, vocab_size, start, peak, temperature, TILE)
            kept = bits <= limit
            number = tl.minimum(distance * BINS_PER_UNIT, BINS - 1.0).to(tl.int32)
            histogram += tl.histogram(number, BINS, mask=kept)
            num_kept += tl.sum(kept.to(tl.int32))
            total += tl.sum(tl.where(kept, tl.exp(-distance), 0.0)).to(tl.float64)
        num_bins = tl.sum((tl.cumsum(histogram, 0) <= CANDIDATES).to(tl.int32))

        # 2. The list, in the order of the tokens.
        num_listed = 0
        listed_total = tl.full([], 0.0, tl.float64)
        for start in range(0, vocab_size, TILE):
            distance, bits = _distances(whole, vocab_size, start, peak, temperature, TILE)
            number = tl.minimum(distance * BINS_PER_UNIT, BINS - 1.0).to(tl.int32)
            chosen = (bits <= limit) & (number < num_bins)
            at = start + tl.arange(0, TILE)
            place = num_listed + tl.cumsum(chosen.to(tl.int32), 0) - 1
            tl.store(list_logits + place, tl.load(whole + at, mask=chosen), mask=chosen)
            tl.store(list_tokens + place, at, mask=chosen)
            num_listed += tl.sum(chosen.to(tl.int32))
            listed_total += tl.sum(tl.where(chosen, tl.exp(-distance), 0.0)).to(tl.float64)
        tl.debug_barrier()  # other threads read what one thread has stored
        is_listed = (num_listed == num_kept) | ((k > 0) & (num_listed >= k))
        is_listed = is_listed | ((k <= 0) & (listed_total >= top_p * total) & (top_p < 1.0))
        if is_listed:
            source, length = list_logits, num_listed

        # 3. The greatest distances that top-k and top-p keep.
        if (k > 0) & (k < num_kept):
            low, high = 0, limit
            while low < high:
                middle = low + (high - low) // 2
                num_nearer, _, num_at = _within(source, length, peak, temperature, middle, TILE)
                if num_nearer + num_at >= k:
                    high = middle
                else:
                    low = middle + 1
            limit = low
            _, total, num_at = _within(source, length, peak, temperature, limit, TILE)
            total += num_at * _weight_at(limit)
        if top_p < 1.0:
            low, high = 0, limit
            while low < high:
                middle = low + (high - low) // 2
                _, nearer_total, num_at = _within(source, length, peak, temperature, middle, TILE)
                if nearer_total + num_at * _weight_at(middle) >= top_p * total:
                    high = middle
                else:
                    low = middle + 1
            limit = low

    # Of the tokens exactly at the limit, top-p keeps only as many as it needs, in the order of the tokens.
    _, nearer_total, num_last = _within(source, length, peak, temperature, limit, TILE)
    weight = _weight_at(limit)
    if (top_p < 1.0) & (num_last > 1):
        needed = tl.ceil((top_p * total - nearer_total) / weight)
        num_last = tl.minimum(tl.maximum(needed, 1.0), num_last.to(tl.float64)).to(tl.int32)
    point = uniform * (nearer_total + num_last * weight)

    # The draw: the first token whose running sum exceeds the point.
    found = FARTHEST
    last_kept = -1
    seen = 0
    running = tl.full([], 0.0, tl.float64)
    for start in range(0, length, TILE):
        distance, bits = _distances(source, length, start, peak, temperature, TILE)
        last = bits == limit
        order = seen + tl.cumsum(last.to(tl.int32), 0)  # numbers of the tokens at the limit
        kept = (bits < limit) | (last & (order <= num_last))
        weights = tl.where(kept, tl.exp(-distance), 0.0)
        sums = running + tl.cumsum(weights, 0).to(tl.float64)
        at = start + tl.arange(0, TILE)
        found = tl.minimum(found, tl.min(tl.where((sums > point) & (weights > 0.0), at, FARTHEST)))
        last_kept = tl.maximum(last_kept, tl.max(tl.where(weights > 0.0, at, -1)))
        seen += tl.sum(last.to(tl.int32))
        running += tl.sum(weights).to(tl.float64)
    found = tl.minimum(found, last_kept)  # a rounding error may put the point beyond the last sum
    if found >= 0:
        token = found.to(tl.int64)
        if is_listed:
            token = tl.load(list_tokens + found).to(tl.int64)
    tl.store(tokens + row, token)


def draw_tokens(
    logits: Tensor,
    rows: Sequence[int],
    likeliest: Tensor,
    params: Sequence[SamplingParams],
    uniforms: Sequence[float],
) -> Tensor:
    """Draw a token for each of the given rows. Implements `DrawTokens`; see `sampling/sampler.py`."""
    device, num_rows = logits.device, len(rows)
    reaches = [abs(math.log(each.min_p)) if each.min_p > 0 else math.inf for each in params]  # no -0.0
    settings = [(each.top_p, u, reach) for each, u, reach in zip(params, uniforms, reaches, strict=True)]
    ints = np.array([rows, [max(each.top_k, 0) for each in params]], dtype=np.int64)  # [2, D]
    (on_device,) = to_device([ints], device)
    tokens = likeliest.index_select(0, on_device[0])  # [D]
    sample_kernel[(num_rows,)](
        logits,
        on_device[0],
        column([number for each in settings for number in each], torch.float64, device),  # [D * 3]
        positive_column([each.temperature for each in params], torch.float32, device),
        on_device[1],
        likeliest,
        tokens,
        torch.empty(num_rows, CANDIDATES, dtype=torch.float32, device=device),
        torch.empty(num_rows, CANDIDATES, dtype=torch.int32, device=device),
        logits.shape[1],
        logits.stride(0),
        CANDIDATES=CANDIDATES,
        BINS=BINS,
        BINS_PER_UNIT=BINS_PER_UNIT,
        FARTHEST=FARTHEST,
        TILE=TILE,
        num_warps=8,
        enable_fp_fusion=True,
    )
    return tokens
