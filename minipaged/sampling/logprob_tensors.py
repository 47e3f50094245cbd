"""Log-probabilities of chosen tokens and of the likeliest ones, from raw logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from minipaged.sampling.filters import largest_entries
from minipaged.sampling.logprobs import TokenLogprobs
from minipaged.transfer import Queued, column, queued_together

ELEMENTS_AT_ONCE = 2**23
"""The most entries of `[rows, vocab]` to process at once. Intermediate results stay below about 200 MB."""


def row_chunks(rows: Sequence[int], vocab_size: int) -> Iterator[Sequence[int]]:
    """`rows` in chunks of at most `ELEMENTS_AT_ONCE` logits, but of at least one row."""
    size = max(1, ELEMENTS_AT_ONCE // vocab_size)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


@dataclass(frozen=True)
class LogprobTensors:
    """Log-probabilities of R positions, on the device. The host has not waited for them yet.

    Attributes:
        token_ids: int64 `[R]`, the token at each position.
        logprobs: float32 `[R]`, the log-probabilities of these tokens.
        ranks: int64 `[R]`, the ranks of these tokens, from 1.
        top_ids: int64 `[R, K]`, the likeliest tokens at each position, in any order.
        top_logprobs: float32 `[R, K]`, the log-probabilities of the likeliest tokens.
    """

    token_ids: Tensor
    logprobs: Tensor
    ranks: Tensor
    top_ids: Tensor
    top_logprobs: Tensor

    def queue(self, num_top: Sequence[int]) -> Queued[list[TokenLogprobs]]:
        """The values, to be read later, with the `num_top[r]` likeliest tokens of row r."""
        return Queued(
            self.pack().flatten(),
            lambda on_host: unpack_logprobs(on_host.reshape(len(num_top), -1), num_top),
        )

    def pack(self) -> Tensor:
        """All fields as one tensor, int64 `[R, 3 + 2K]`, so that the host reads and waits only once.

        Log-probabilities are stored as their bits.
        """
        columns = [self.token_ids, self.ranks, _bits(self.logprobs)]
        return torch.cat([torch.stack(columns, dim=1), self.top_ids, _bits(self.top_logprobs)], dim=1)


def unpack_logprobs(packed: npt.NDArray[np.int64], num_top: Sequence[int]) -> list[TokenLogprobs]:
    """The values in a result of `LogprobTensors.pack`, with the `num_top[r]` likeliest tokens of row r."""
    middle = 3 + (packed.shape[1] - 3) // 2
    token_ids: list[int] = packed[:, 0].tolist()
    ranks: list[int] = packed[:, 1].tolist()
    logprobs: list[float] = _from_bits(packed[:, 2]).tolist()
    top_ids: list[list[int]] = packed[:, 3:middle].tolist()
    top_logprobs: list[list[float]] = _from_bits(packed[:, middle:]).tolist()
    result: list[TokenLogprobs] = []
    for row, k in enumerate(num_top):
        top = list(zip(top_ids[row], top_logprobs[row], strict=True))
        # As for ranks, equally likely tokens are in order of their ids.
        top.sort(key=lambda entry: (-entry[1], entry[0]))
        result.append(TokenLogprobs(token_ids[row], logprobs[row], ranks[row], tuple(top[:k])))
    return result


def _bits(numbers: Tensor) -> Tensor:
    """The bits of float32 numbers, as int64."""
    return numbers.contiguous().view(torch.int32).long()


def _from_bits(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    return bits.astype(np.int32).view(np.float32)


def gather_logprobs(logits: Tensor, rows: Sequence[int], token_ids: Tensor, num_top: int) -> LogprobTensors:
    """Log-probabilities for some rows of `logits`, without waiting for the device.

    Args:
        logits: `[R, V]`, raw, without penalties and temperature. Not changed.
        rows: the indices of the rows, at least one.
        token_ids: int64 `[R]`, for each row of `logits`, the token whose log-probability is wanted.
        num_top: how many of the likeliest tokens to report for each row.

    Returns:
        Tensors whose first dimension is `len(rows)`.
    """
    vocab_size = logits.shape[1]
    ids = torch.arange(vocab_size, device=logits.device)  # [V]
    parts: list[LogprobTensors] = []
    for chunk in row_chunks(rows, vocab_size):
        index = column(chunk, torch.int64, logits.device)  # [C]
        logprobs = logits.index_select(0, index).float().log_softmax(dim=-1)  # [C, V]
        token = token_ids.index_select(0, index)  # [C]
        logprob = logprobs.gather(1, token[:, None])  # [C, 1]
        likelier = logprobs > logprob  # [C, V]
        level = (logprobs == logprob) & (ids < token[:, None])  # [C, V]
        rank = (likelier | level).sum(dim=-1) + 1  # [C]
        top_ids = _likeliest(logprobs, min(num_top, vocab_size))  # [C, K]
        parts.append(LogprobTensors(token, logprob.squeeze(1), rank, top_ids, logprobs.gather(1, top_ids)))
    return LogprobTensors(
        torch.cat([part.token_ids for part in parts]),
        torch.cat([part.logprobs for part in parts]),
        torch.cat([part.ranks for part in parts]),
        torch.cat([part.top_ids for part in parts]),
        torch.cat([part.top_logprobs for part in parts]),
    )


def _likeliest(logprobs: Tensor, num_top: int) -> Tensor:
    """The ids of each row's `num_top` largest entries, int64 `[C, K]`. Ties go to the lowest ids.

    `topk` may take any of several equal entries, and half-precision models often give equal ones. So the
    first `topk` only finds the smallest value to include. Then a mask selects the entries, and the second
    `topk` collects their ids.
    """
    if num_top == 0:
        return logprobs.new_empty((logprobs.shape[0], 0), dtype=torch.int64)  # [C, 0]
    threshold = logprobs.topk(num_top, dim=-1).values[:, -1:]  # [C, 1]
    count = torch.full_like(threshold, num_top, dtype=torch.int64)  # [C, 1]
    belongs = largest_entries(logprobs, threshold, count)  # [C, V], num_top entries are true in each row
    return belongs.float().topk(num_top, dim=-1).indices  # [C, K]


@torch.inference_mode()
def queue_prompt_logprobs(
    logits: Tensor, next_token_ids: Sequence[int], k: int
) -> Queued[list[TokenLogprobs]]:
    """Queue the log-probability of each prompt token, given the tokens before it.

    Args:
        logits: float32 `[R, V]`: row r was computed at one position of the prompt.
        next_token_ids: for each of the R rows, the prompt token after that position.
        k: how many of the likeliest tokens to report for each position.

    Returns:
        One entry for each row. NaN among a row's logits gives NaN in its entry.
    """
    num_rows = logits.shape[0]
    if len(next_token_ids) != num_rows:
        raise ValueError(f"{num_rows} rows of logits need {num_rows} tokens, not {len(next_token_ids)}")
    if num_rows == 0:
        return queued_together([], logits.device)
    following = column(next_token_ids, torch.int64, logits.device)  # [R]
    return gather_logprobs(logits, range(num_rows), following, k).queue([k] * num_rows)
