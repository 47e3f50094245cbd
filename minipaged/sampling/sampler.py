"""The sampler: from a step's logits to one token per row. Each row has its own parameters.

The steps are in vLLM's order (vllm/v1/sample/sampler.py): log-probabilities from the raw logits; banned
tokens and penalties; temperature; min-p; top-k; top-p; the draw. Rows are processed together, without a loop
over them. The token of a row never depends on another row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from minipaged.sampling.draw import draw
from minipaged.sampling.filters import keep_min_p, keep_top_k, keep_top_p, scale_by_temperature
from minipaged.sampling.logprob_tensors import gather_logprobs, row_chunks, unpack_logprobs
from minipaged.sampling.logprobs import TokenLogprobs
from minipaged.sampling.params import SamplingParams
from minipaged.sampling.penalties import ban_tokens, penalise
from minipaged.transfer import Int64s, Queued, column, queued_together

NO_TOKEN = -1
"""The token id of a row in which nothing could be sampled."""


@dataclass(slots=True)  # not frozen, for speed; see `ScheduledSequence`
class SamplingRow:
    """How to sample from one row of logits.

    Attributes:
        params: the request's parameters.
        prompt_token_ids, output_token_ids: the tokens so far. Only penalties use them.
        uniform: the row's random number in [0, 1), from `uniform(seed, sample_index, position)`. Greedy
            rows ignore it.
        banned_token_ids: tokens that must not be chosen. While the output has fewer than `min_tokens` tokens,
            these are the stop tokens.
    """

    params: SamplingParams
    prompt_token_ids: Sequence[int]
    output_token_ids: Sequence[int]
    uniform: float
    banned_token_ids: tuple[int, ...] = ()

    @property
    def changes_logits(self) -> bool:
        """Whether penalties or bans change the logits."""
        return self.params.has_penalties or bool(self.banned_token_ids)


@dataclass(slots=True)
class SampledToken:
    """One row's result.

    Attributes:
        token_id: the token; `NO_TOKEN` if there is an error.
        logprob: its log-probability, if the parameters ask for it and there is no error.
        error: why no token could be sampled in this row, or `None`.
    """

    token_id: int
    logprob: TokenLogprobs | None = None
    error: str | None = None


def sampling_device(device: torch.device) -> torch.device:
    """Where logits that were computed on `device` are sampled, and their log-probabilities are found.

    Sampling needs float64, which Apple's GPUs do not have. Their logits are copied to the CPU, and sampled
    there.
    """
    return torch.device("cpu") if device.type == "mps" else device


class DrawTokens(Protocol):
    """The interface of `draw_tokens`, which has a faster twin for CUDA in `triton_kernels/sampling.py`."""

    def __call__(
        self,
        logits: Tensor,
        rows: Sequence[int],
        likeliest: Tensor,
        params: Sequence[SamplingParams],
        uniforms: Sequence[float],
    ) -> Tensor:
        """Filter some of the rows, and draw a token for each of them.

        Args:
            logits: float32 `[R, V]`, each row contiguous; not changed.
            rows: the D rows to draw from, at least one.
            likeliest: int64 `[R]`, a token with the largest logit of each row.
            params: the parameters of the D rows. Only those of the filters are read.
            uniforms: D random numbers in [0, 1).

        Returns:
            Token ids, int64 `[D]`. A row that holds NaN, or no finite logit, gets an arbitrary one.
        """
        ...


def draw_tokens(
    logits: Tensor,
    rows: Sequence[int],
    likeliest: Tensor,
    params: Sequence[SamplingParams],
    uniforms: Sequence[float],
) -> Tensor:
    """Filter some of the rows, and draw a token for each of them; see `DrawTokens`."""
    drawn: list[Tensor] = []
    for chunk in row_chunks(range(len(rows)), logits.shape[1]):
        index = column([rows[i] for i in chunk], torch.int64, logits.device)  # [C]
        of_chunk = [params[i] for i in chunk]
        kept = scale_by_temperature(
            logits.index_select(0, index), [p.temperature for p in of_chunk]
        )  # [C, V]
        kept = keep_min_p(kept, [p.min_p for p in of_chunk])
        kept = keep_top_k(kept, [p.top_k for p in of_chunk])
        kept = keep_top_p(kept, [p.top_p for p in of_chunk])
        drawn.append(draw(kept, [uniforms[i] for i in chunk]))  # [C]
    return torch.cat(drawn)  # [D]


def sample(
    logits: Tensor, rows: Sequence[SamplingRow], draw_tokens: DrawTokens = draw_tokens
) -> list[SampledToken]:
    """Sample one token for each row, and wait for the device. See `queue_samples`."""
    return queue_samples(logits, rows, draw_tokens).read()


@torch.inference_mode()
def queue_samples(
    logits: Tensor, rows: Sequence[SamplingRow], draw_tokens: DrawTokens = draw_tokens
) -> Queued[list[SampledToken]]:
    """Sample one token for each row, without waiting for the device.

    A logit of −inf is allowed: the token has probability 0. A row gets an error if it holds NaN or +inf, or
    has no finite logit, before or after penalties and bans. The other rows are not affected.

    Args:
        logits: `[R, V]`, float32; not changed.
        rows: how to sample from each of the R rows.
        draw_tokens: filters and draws.

    Raises:
        ValueError: the logits do not have one row for each of `rows`.
    """
    if logits.dim() != 2 or logits.shape[0] != len(rows):
        raise ValueError(f"{len(rows)} rows need logits [{len(rows)}, vocab], not {list(logits.shape)}")
    if not rows:
        return queued_together([], logits.device)
    vocab_size = logits.shape[1]

    # max() of a row with NaN is NaN. So `peak` is not finite if a row has NaN, +inf or no finite logit.
    peak, token_ids = logits.max(dim=-1)  # [R], [R]
    sound = peak.isfinite()  # [R]
    choosable = sound.clone()  # [R]
    # Greedy rows without penalties and bans have their tokens already: those with the largest logits.
    changed = [i for i, row in enumerate(rows) if row.changes_logits]
    for chunk in row_chunks(changed, vocab_size) if changed else ():
        index = column(chunk, torch.int64, logits.device)  # [C]
        # `_change` works in place. index_select makes a copy; float() copies only other dtypes.
        copied, of_chunk = logits.index_select(0, index).float(), [rows[i] for i in chunk]
        _change(copied, of_chunk)
        highest, chosen = copied.max(dim=-1)  # [C], [C]
        _draw_into(chosen, copied, of_chunk, range(len(chunk)), draw_tokens)
        token_ids.index_copy_(0, index, chosen)
        choosable.index_copy_(0, index, highest.isfinite() & sound.index_select(0, index))
    unchanged = [i for i, row in enumerate(rows) if not row.changes_logits]
    _draw_into(token_ids, logits, rows, unchanged, draw_tokens)

    wanted = {i: row.params.logprobs for i, row in enumerate(rows) if row.params.logprobs is not None}
    parts = [token_ids, sound.long(), choosable.long()]  # [R] each
    if wanted:
        reported = gather_logprobs(logits, list(wanted), token_ids, max(wanted.values()))
        parts.append(reported.pack().flatten())

    def unpack(on_host: Int64s) -> list[SampledToken]:
        ids, raw, possible = on_host[: 3 * len(rows)].reshape(3, len(rows))  # [R] each
        sampled = [SampledToken(token_id) for token_id in ids.tolist()]
        if wanted:
            packed = on_host[3 * len(rows) :].reshape(len(wanted), -1)
            for i, logprob in zip(wanted, unpack_logprobs(packed, list(wanted.values())), strict=True):
                sampled[i].logprob = logprob
        for i in np.flatnonzero(possible == 0).tolist():
            sampled[i] = SampledToken(NO_TOKEN, error=_complaint(raw[i]))
        return sampled

    return Queued(torch.cat(parts), unpack)


def _draw_into(
    token_ids: Tensor,
    logits: Tensor,
    rows: Sequence[SamplingRow],
    candidates: Sequence[int],
    draw_tokens: DrawTokens,
) -> None:
    """Draw a token for each candidate that is not greedy, and write the tokens into `token_ids` `[R]`."""
    drawn = [i for i in candidates if not rows[i].params.greedy]
    if drawn:
        params, uniforms = [rows[i].params for i in drawn], [rows[i].uniform for i in drawn]
        index = column(drawn, torch.int64, logits.device)  # [D]
        token_ids.index_copy_(0, index, draw_tokens(logits.float(), drawn, token_ids, params, uniforms))


def _change(logits: Tensor, rows: Sequence[SamplingRow]) -> None:
    """Write penalties and bans into `logits` `[R, V]`."""
    ban_tokens(logits, [row.banned_token_ids for row in rows])
    penalise(
        logits,
        [row.prompt_token_ids for row in rows],
        [row.output_token_ids for row in rows],
        [row.params.repetition_penalty for row in rows],
        [row.params.presence_penalty for row in rows],
        [row.params.frequency_penalty for row in rows],
    )


def _complaint(raw_logits_sound: np.int64) -> str:
    if raw_logits_sound:
        return (
            "no token can be sampled: penalties and banned tokens leave no finite logit, or an infinite one"
        )
    return "no token can be sampled: the model's logits hold NaN or +inf, or are -inf throughout"
