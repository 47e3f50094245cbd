"""AttentionMetadata: which tokens of a step belong to which sequence, and where each is in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class AttentionMetadata:
    """One ragged step: T tokens of S sequences, one sequence after the other, without padding.

    The tokens of sequence s are rows `query_start_loc[s] : query_start_loc[s + 1]`. The sequence has
    `seq_lens[s]` tokens, and these rows are the last of them. Sequences that compute one token come first.

    Attributes:
        query_start_loc: int32 `[S + 1]`, begins with 0 and ends with T.
        seq_lens: int32 `[S]`, tokens in the cache once this step's tokens are written.
        block_tables: int32 `[S, M]`, each row padded with the null block.
        slot_mapping: int64 `[T]`, the slot for each token's key and value.
        query_start_list: `query_start_loc` as plain integers.
        seq_lens_list: `seq_lens` as plain integers.
        num_decodes: how many leading sequences have exactly one query token.
    """

    query_start_loc: Tensor
    seq_lens: Tensor
    block_tables: Tensor
    slot_mapping: Tensor
    query_start_list: tuple[int, ...]
    seq_lens_list: tuple[int, ...]
    num_decodes: int


class AttentionFn(Protocol):
    """The signature of every attention backend."""

    def __call__(self, query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        """Attend from a step's queries to the cache, which already holds the step's own tokens.

        Args:
            query: `[T, num_heads, head_dim]`.
            kv_layer: `[2, num_blocks, block_size, num_kv_heads, head_dim]`. Slots that belong to no
                sequence of the step may hold any numbers, even NaN. The null block is always finite.
            metadata: the step's layout.
            scale: the factor for the attention scores; above 0, usually `head_dim ** -0.5`.

        Returns:
            `[T, num_heads, head_dim]`.
        """
        ...
