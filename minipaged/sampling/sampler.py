"""The sampler: from a step's logits to one token per row. Each row has its own parameters.

The order is vLLM's (vllm/v1/sample/sampler.py): log-probabilities from the raw logits; banned tokens and
penalties; temperature; min-p; top-k; top-p; the draw. Rows are processed together, without a loop over them.
The token of a row never depends on another row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class SamplingRow:
    """How to sample from one row of logits.

    Attributes:
        params: the request's parameters.
        prompt_token_ids, output_token_ids: the tokens so far. Only penalties use them.
        uniform: the row's random number in [0, 1), from `uniform(seed, sample_index, position)`. Greedy
            rows ignore it.
        banned_token_ids: tokens that must not be chosen: before `min_tokens` tokens, the stop tokens.
    """

    params: SamplingParams
    prompt_token_ids: Sequence[int]
    output_token_ids: Sequence[int]
    uniform: float
    banned_token_ids: tuple[int, ...] = ()

    @property
    def argmax_suffices(self) -> bool:
        """Whether the token is simply that of the largest raw logit."""
        return self.params.greedy and not self.params.has_penalties and not self.banned_token_ids


@dataclass(frozen=True)
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

    Apple's GPUs have no float64. There the logits are what a step reads, and all that follows is on the CPU.
    """
    return torch.device("cpu") if device.type == "mps" else device


def sample(logits: Tensor, rows: Sequence[SamplingRow]) -> list[SampledToken]:
    """Sample one token for each row, and wait for the device. See `queue_samples`."""
    return queue_samples(logits, rows).read()


@torch.inference_mode()
def queue_samples(logits: Tensor, rows: Sequence[SamplingRow]) -> Queued[list[SampledToken]]:
    """Sample one token for each row, without waiting for the device.

    A logit of −inf is allowed: the token has probability 0. A row gets an error if it holds NaN or +inf, or
    has no finite logit, before or after penalties and bans. The other rows are not affected.

    Args:
        logits: `[R, V]`, float32; not changed.
        rows: how to sample from each of the R rows.

    Raises:
        ValueError: the logits do not have one row for each of `rows`.
    """
    if logits.dim() != 2 or logits.shape[0] != len(rows):
        raise ValueError(f"{len(rows)} rows need logits [{len(rows)}, vocab], not {list(logits.shape)}")
    if not rows:
        return queued_together([], logits.device)
    vocab_size = logits.shape[1]

    # max() of a row with NaN is NaN, so this number shows whether a row is sound.
    peak, token_ids = logits.max(dim=-1)  # [R], [R]
    sound = peak.isfinite()  # [R]
    choosable = sound.clone()  # [R]
    others = [i for i, row in enumerate(rows) if not row.argmax_suffices]
    for chunk in row_chunks(others, vocab_size) if others else ():
        index = column(chunk, torch.int64, logits.device)  # [C]
        # `_choose` changes its logits. index_select copies them; float() copies only other dtypes.
        chosen, possible = _choose(logits.index_select(0, index).float(), [rows[i] for i in chunk])
        token_ids.index_copy_(0, index, chosen)
        choosable.index_copy_(0, index, possible & sound.index_select(0, index))

    wanted = {i: row.params.logprobs for i, row in enumerate(rows) if row.params.logprobs is not None}
    parts = [token_ids, sound.long(), choosable.long()]  # [R] each
    if wanted:
        reported = gather_logprobs(logits, list(wanted), token_ids, max(wanted.values()))
        parts.append(reported.pack().flatten())

    def unpack(on_host: Int64s) -> list[SampledToken]:
        columns: list[list[int]] = on_host[: 3 * len(rows)].reshape(3, len(rows)).tolist()  # [3, R]
        logprobs: dict[int, TokenLogprobs] = {}
        if wanted:
            packed = on_host[3 * len(rows) :].reshape(len(wanted), -1)
            logprobs = dict(zip(wanted, unpack_logprobs(packed, list(wanted.values())), strict=True))
        return [
            SampledToken(token_id, logprobs.get(i)) if can else SampledToken(NO_TOKEN, error=_complaint(raw))
            for i, (token_id, raw, can) in enumerate(zip(*columns, strict=True))
        ]

    return Queued(torch.cat(parts), unpack)


def _choose(logits: Tensor, rows: Sequence[SamplingRow]) -> tuple[Tensor, Tensor]:
    """Token ids `[R]`, and whether the largest logit of each row is finite after penalties, bool `[R]`.

    Penalties and bans are written into `logits` `[R, V]`.
    """
    ban_tokens(logits, [row.banned_token_ids for row in rows])
    penalise(
        logits,
        [row.prompt_token_ids for row in rows],
        [row.output_token_ids for row in rows],
        [row.params.repetition_penalty for row in rows],
        [row.params.presence_penalty for row in rows],
        [row.params.frequency_penalty for row in rows],
    )
    peak, token_ids = logits.max(dim=-1)  # [R], [R]
    drawn = [i for i, row in enumerate(rows) if not row.params.greedy]
    if drawn:
        index = column(drawn, torch.int64, logits.device)  # [D]
        params = [rows[i].params for i in drawn]
        kept = scale_by_temperature(logits.index_select(0, index), [p.temperature for p in params])  # [D, V]
        kept = keep_min_p(kept, [p.min_p for p in params])
        kept = keep_top_k(kept, [p.top_k for p in params])
        kept = keep_top_p(kept, [p.top_p for p in params])
        token_ids.index_copy_(0, index, draw(kept, [rows[i].uniform for i in drawn]))
    return token_ids, peak.isfinite()


def _complaint(raw_logits_sound: int) -> str:
    if raw_logits_sound:
        return (
            "no token can be sampled: penalties and banned tokens leave no finite logit, or an infinite one"
        )
    return "no token can be sampled: the model's logits hold NaN or +inf, or are -inf throughout"
