"""OwnDecode: separate functions compute decodes, and an attention backend computes everything else."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from minipaged.attention.metadata import AttentionFn, AttentionMetadata

NUM_SPLITS = 4
"""The number of parts into which a sequence is cut if it is the only decode of its step."""


class DecodeFn(Protocol):
    """The signature of `Parts.paged_decode`, a function that computes decodes."""

    def __call__(
        self, query: Tensor, kv_layer: Tensor, block_tables: Tensor, seq_lens: Tensor, scale: float
    ) -> Tensor:
        """Attend from the last token of each of D sequences to all tokens of that sequence.

        Args:
            query: `[D, num_heads, head_dim]`.
            kv_layer: as in `AttentionFn`.
            block_tables: int32 `[D, M]`.
            seq_lens: int32 `[D]`.
            scale: multiplies the scores.

        Returns:
            `[D, num_heads, head_dim]`.
        """
        ...


class SplitDecodeFn(Protocol):
    """The signature of `Parts.paged_decode_split`, a `DecodeFn` that cuts each sequence into parts."""

    def __call__(
        self,
        query: Tensor,
        kv_layer: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        scale: float,
        num_splits: int,
    ) -> Tensor: ...


class OwnDecode:
    """An `AttentionFn` made of three functions: one for a single decode, one for several, one for the rest.

    Args:
        others: computes prompts and chunks, and decodes if the function for them is `None`.
        decode: computes decodes.
        decode_split: computes the decode of a step that has only one, in `NUM_SPLITS` parts.
    """

    def __init__(
        self, others: AttentionFn, decode: DecodeFn | None, decode_split: SplitDecodeFn | None
    ) -> None:
        self._others = others
        self._decode = decode
        self._decode_split = decode_split

    def __call__(self, query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        num_decodes = metadata.num_decodes
        tables, seq_lens = metadata.block_tables[:num_decodes], metadata.seq_lens[:num_decodes]
        if num_decodes == 1 and self._decode_split is not None:
            decoded = self._decode_split(query[:1], kv_layer, tables, seq_lens, scale, NUM_SPLITS)
        elif num_decodes and self._decode is not None:
            decoded = self._decode(query[:num_decodes], kv_layer, tables, seq_lens, scale)
        else:
            return self._others(query, kv_layer, metadata, scale)
        if num_decodes == len(metadata.seq_lens_list):
            return decoded
        rest = self._others(query[num_decodes:], kv_layer, _without_decodes(metadata), scale)
        return torch.cat([decoded, rest])  # [T, num_heads, head_dim]


def _without_decodes(metadata: AttentionMetadata) -> AttentionMetadata:
    skipped = metadata.num_decodes
    return AttentionMetadata(
        query_start_loc=metadata.query_start_loc[skipped:] - skipped,
        seq_lens=metadata.seq_lens[skipped:],
        block_tables=metadata.block_tables[skipped:],
        slot_mapping=metadata.slot_mapping[skipped:],
        query_start_list=tuple(start - skipped for start in metadata.query_start_list[skipped:]),
        seq_lens_list=metadata.seq_lens_list[skipped:],
        num_decodes=0,
    )
