"""Writing keys and values into a region of the KV cache, and reading them.

The token at a position is in slot `region start + position`, so writing and reading each use one slice of the
cache (paper, section 3).
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class WriteRegion(Protocol):
    """The signature of `write_region`, for functions that replace it in the engine."""

    def __call__(self, slots: Tensor, start: int, position: int, key: Tensor, value: Tensor) -> None: ...


class ReadRegion(Protocol):
    """The signature of `read_region`, for functions that replace it in the engine."""

    def __call__(self, slots: Tensor, start: int, num_tokens: int) -> tuple[Tensor, Tensor]: ...


def write_region(slots: Tensor, start: int, position: int, key: Tensor, value: Tensor) -> None:
    """Store the keys and values of a sequence's next tokens.

    Args:
        slots: one layer's cache, `[2, num_slots, num_kv_heads, head_dim]`; written in place.
        start: the first slot of the sequence's region.
        position: the position of the first token in its sequence.
        key: the keys of Q consecutive tokens, `[Q, num_kv_heads, head_dim]`.
        value: their values, of the same shape.
    """
    first = start + position
    slots[0, first : first + len(key)] = key
    slots[1, first : first + len(value)] = value


def read_region(slots: Tensor, start: int, num_tokens: int) -> tuple[Tensor, Tensor]:
    """The keys and values of a sequence's first `num_tokens` tokens, as views of the cache.

    Args:
        slots: one layer's cache, `[2, num_slots, num_kv_heads, head_dim]`.
        start: the first slot of the sequence's region.
        num_tokens: how many tokens are written so far.

    Returns:
        Keys and values, each `[num_tokens, num_kv_heads, head_dim]`. Nothing is copied.
    """
    keys, values = slots[:, start : start + num_tokens].unbind(0)
    return keys, values
