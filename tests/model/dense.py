"""Attention without a cache, for tests: each sequence of a packed step attends within itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minipaged.model.decoder import AttendFn, Decoder


def dense_attend(lengths: Sequence[int]) -> AttendFn:
    """Causal attention over whole sequences of these lengths that lie one after the other."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = []
        for qs, ks, vs in zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True):
            length, group = len(qs), q.shape[1] // k.shape[1]
            keys = ks.repeat_interleave(group, dim=1)  # [L, Hq, D]
            values = vs.repeat_interleave(group, dim=1)  # [L, Hq, D]
            scores = torch.einsum("qhd,khd->hqk", qs, keys) * q.shape[-1] ** -0.5  # [Hq, L, L]
            future = torch.ones(length, length, dtype=torch.bool).triu(1)
            weights = scores.masked_fill(future, float("-inf")).softmax(-1)
            parts.append(torch.einsum("hqk,khd->qhd", weights, values))
        return torch.cat(parts)

    return attend


@torch.inference_mode()
def packed_logits(decoder: Decoder, sequences: Sequence[Sequence[int]]) -> list[Tensor]:
    """Runs whole sequences as one packed step: for each, [L, vocab] float32."""
    lengths = [len(sequence) for sequence in sequences]
    token_ids = torch.tensor([token for sequence in sequences for token in sequence])  # [T]
    positions = torch.cat([torch.arange(length) for length in lengths])  # [T]
    hidden = decoder(token_ids, positions, dense_attend(lengths))  # [T, hidden]
    return list(decoder.logits(hidden).split(lengths))
