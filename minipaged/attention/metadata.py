"""AttentionMetadata: where in a step's row of tokens each sequence lies, and where its cache is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class AttentionMetadata:
    """One ragged step of S sequences and T tokens, without padding.

    The tokens of sequence s are rows `query_start_loc[s] : query_start_loc[s + 1]`; they are the
    last ones of its `seq_lens[s]` tokens. Sequences that compute one token come first.

    Attributes:
        query_start_loc: int32 `[S + 1]`, begins with 0 and ends with T.
        seq_lens: int32 `[S]`, tokens in the cache once this step's are written.
        block_tables: int32 `[S, M]`, each row padded with the null block.
        slot_mapping: int64 `[T]`, the slot that each token's key and value go to.
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
    """What every attention backend is: a function of this shape."""

    def __call__(self, query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        """Attend from a step's queries to the cache, which already holds the step's own tokens.

        Args:
            query: `[T, num_heads, head_dim]`.
            kv_layer: `[2, num_blocks, block_size, num_kv_heads, head_dim]`. Slots that no sequence
                of the step owns may hold anything, NaN included; the null block is finite.
            metadata: the step's layout.
            scale: multiplies the scores; above 0, usually `head_dim ** -0.5`.

        Returns:
            `[T, num_heads, head_dim]`.
        """
        ...
