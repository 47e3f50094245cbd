"""Writing keys and values to the cache on a CPU: one call for both."""

from __future__ import annotations

import torch
from torch import Tensor

from minipaged.cpu.threads import run_on_threads, threads_for
from minipaged.kv import cache

COPYING = 2e-4
"""About how many microseconds it takes to copy four bytes of a key and of a value."""


def cpu_write_kv(kv_layer: Tensor, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None:
    """`kv.cache.write_kv` for the CPU.

    Raises:
        IndexError: a slot that the cache does not have.
    """
    num_tokens, num_heads, head_dim = key.shape
    token_bytes = num_heads * head_dim * key.element_size()
    same = key.shape == value.shape == (len(slot_mapping), *kv_layer.shape[3:])
    same = same and key.dtype == value.dtype == kv_layer.dtype and slot_mapping.dtype == torch.int64
    if not (same and _adjoining(key) and _adjoining(value)) or token_bytes % 4:
        cache.write_kv(kv_layer, key, value, slot_mapping)
        return
    if not (kv_layer.is_contiguous() and slot_mapping.is_contiguous()):
        cache.write_kv(kv_layer, key, value, slot_mapping)
        return
    # Here, so that nobody waits for numba who does not compute on a CPU.
    from minipaged.attention.cpu_cache_loops import WriteArguments, write_tokens

    num_slots = kv_layer.shape[1] * kv_layer.shape[2]
    words = token_bytes // 4
    keys = kv_layer.data_ptr()  # the values follow
    arguments = WriteArguments(
        next_part=0,
        wrong_slot=-1,
        num_tokens=num_tokens,
        num_slots=num_slots,
        words=words,
        key=key.data_ptr(),
        key_stride=key.stride(0) * key.element_size() // 4,
        value=value.data_ptr(),
        value_stride=value.stride(0) * value.element_size() // 4,
        keys=keys,
        values=keys + kv_layer.nbytes // 2,
        slots=slot_mapping.data_ptr(),
    )
    run_on_threads(write_tokens, arguments, threads_for(COPYING * num_tokens * words))
    if arguments.wrong_slot >= 0:
        slot = int(slot_mapping[arguments.wrong_slot])
        raise IndexError(f"slot {slot} of token {arguments.wrong_slot} is not one of the cache's {num_slots}")


def _adjoining(heads: Tensor) -> bool:
    """Whether a token's heads lie one behind the other, and tokens begin at whole words."""
    _, num_heads, head_dim = heads.shape
    whole = heads.stride(0) * heads.element_size() % 4 == 0 and heads.data_ptr() % 4 == 0
    return whole and heads.stride(0) >= num_heads * head_dim and heads.stride()[1:] == (head_dim, 1)
