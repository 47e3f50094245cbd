"""OwnDecode: which function computes which sequences of a step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from minipaged.attention.metadata import AttentionMetadata
from minipaged.attention.own_decode import NUM_SPLITS, DecodeFn, OwnDecode, SplitDecodeFn
from minipaged.attention.reference import attend_one, gather, reference_attention
from tests.attention.ragged import Heads, Span, dense_attention, make_step

HEADS = Heads(num_kv_heads=2, group=2, head_dim=32)
DECODES = [Span(1, 9), Span(1, 17, num_spare=1)]
PROMPTS = [Span(5, 5), Span(3, 20)]


def _decode(calls: list[str]) -> DecodeFn:
    def decode(
        query: Tensor, kv_layer: Tensor, block_tables: Tensor, seq_lens: Tensor, scale: float
    ) -> Tensor:
        calls.append(f"decode {query.shape[0]}")
        rows = zip(query, block_tables, seq_lens.tolist(), strict=True)
        return torch.cat(
            [attend_one(row[None], *gather(kv_layer, table, length), scale) for row, table, length in rows]
        )

    return decode


def _split(calls: list[str]) -> SplitDecodeFn:
    def decode_split(
        query: Tensor,
        kv_layer: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        scale: float,
        num_splits: int,
    ) -> Tensor:
        calls.append(f"split {num_splits}")
        return _decode([])(query, kv_layer, block_tables, seq_lens, scale)

    return decode_split


@pytest.mark.parametrize(
    ("spans", "parts", "expected"),
    [
        (DECODES, ("decode", "split"), ["decode 2"]),
        (DECODES[:1], ("decode", "split"), [f"split {NUM_SPLITS}"]),
        (DECODES[:1], ("decode",), ["decode 1"]),
        (DECODES, ("split",), ["others 2"]),
        (PROMPTS, ("decode", "split"), ["others 2"]),
        ([*DECODES, *PROMPTS], ("decode", "split"), ["decode 2", "others 2"]),
        ([*DECODES[:1], *PROMPTS], ("decode", "split"), [f"split {NUM_SPLITS}", "others 2"]),
    ],
)
def test_each_sequence_has_its_function(
    spans: list[Span], parts: tuple[str, ...], expected: list[str]
) -> None:
    calls: list[str] = []

    def others(query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        calls.append(f"others {len(metadata.seq_lens_list)}")
        return reference_attention(query, kv_layer, metadata, scale)

    step = make_step(spans, HEADS, 4)
    decode = _decode(calls) if "decode" in parts else None
    decode_split = _split(calls) if "split" in parts else None
    attention = OwnDecode(others, decode, decode_split)
    output = attention(step.query, step.kv_layer, step.metadata, HEADS.scale)
    assert calls == expected
    torch.testing.assert_close(output.double(), dense_attention(step), atol=1e-5, rtol=0)
