"""Writing into a region of the KV cache, and reading from it: the token at a position is in slot
`region start + position`, so both are a slice (paper, section 3).
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class WriteRegion(Protocol):
    """The seam of `write_region`."""

    def __call__(self, slots: Tensor, start: int, position: int, key: Tensor, value: Tensor) -> None: ...


class ReadRegion(Protocol):
    """The seam of `read_region`."""

    def __call__(self, slots: Tensor, start: int, num_tokens: int) -> tuple[Tensor, Tensor]: ...


def write_region(slots: Tensor, start: int, position: int, key: Tensor, value: Tensor) -> None:
    """Store the keys and values of a sequence's next tokens.

    Args:
        slots: one layer's cache, `[2, num_slots, num_kv_heads, head_dim]`; written in place.
        start: the first slot of the sequence's region.
        position: the position of the first token in its sequence.
        key: `[Q, num_kv_heads, head_dim]`, of Q tokens that follow each other.
        value: as `key`.
    """
    first = start + position
    slots[0, first : first + len(key)] = key
    slots[1, first : first + len(value)] = value


def read_region(slots: Tensor, start: int, num_tokens: int) -> tuple[Tensor, Tensor]:
    """The keys and values of a sequence's first tokens, where they lie: nothing is copied.

    Args:
        slots: one layer's cache, `[2, num_slots, num_kv_heads, head_dim]`.
        start: the first slot of the sequence's region.
        num_tokens: how many tokens are written so far.

    Returns:
        Keys and values, each a view `[num_tokens, num_kv_heads, head_dim]`.
    """
    keys, values = slots[:, start : start + num_tokens].unbind(0)
    return keys, values
