"""Write keys and values to the cache on a CPU, in one call for both."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from minipaged.cpu.attention.cache_write_loops import WriteArguments, write_tokens
from minipaged.cpu.compiler.calls import Call
from minipaged.cpu.compiler.threads import threads_for
from minipaged.kv import cache

COPYING = 2e-4
"""About how many microseconds it takes to copy four bytes of a key and of a value."""


def cpu_write_kv(kv_layer: Tensor, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None:
    """Do what `kv.cache.write_kv` does, in compiled code on the CPU.

    Raises:
        IndexError: a token has a slot that the cache does not have.
    """
    _, num_heads, head_dim = key.shape
    token_bytes = num_heads * head_dim * key.element_size()
    same = key.shape == value.shape == (len(slot_mapping), *kv_layer.shape[3:])
    same = same and key.dtype == value.dtype == kv_layer.dtype and slot_mapping.dtype == torch.int64
    adjoining = _adjoining(key) and _adjoining(value) and token_bytes % 4 == 0
    if not (same and adjoining and kv_layer.is_contiguous() and slot_mapping.is_contiguous()):
        cache.write_kv(kv_layer, key, value, slot_mapping)
        return
    call = call_write_kv(kv_layer, key, value, slot_mapping)
    call.run()
    check_written(call.arguments, slot_mapping)


def check_written(arguments: ctypes.Structure, slot_mapping: Tensor) -> None:
    """Check the arguments of `call_write_kv` after it has run.

    Raises:
        IndexError: a token has a slot that the cache does not have.
    """
    wrong = arguments.wrong_slot
    if wrong >= 0:
        slot, num_slots = int(slot_mapping[wrong]), arguments.num_slots
        raise IndexError(f"slot {slot} of token {wrong} is not one of the cache's {num_slots}")


def call_write_kv(
    kv_layer: Tensor, key: Tensor, value: Tensor, slot_mapping: Tensor, *, num_threads: int | None = None
) -> Call:
    """`cpu_write_kv` as a call that has not run yet.

    The call skips a token with a wrong slot, which `check_written` then reports. The call does not keep its
    tensors alive.

    Args:
        kv_layer, slot_mapping: contiguous.
        key, value: of the cache's dtype, each token's heads contiguous.
        num_threads: number of threads to use. If it is not given, the amount of work decides.
    """
    num_tokens, num_heads, head_dim = key.shape
    words = num_heads * head_dim * key.element_size() // 4
    keys = kv_layer.data_ptr()  # the values come after the keys
    arguments = WriteArguments(
        next_part=0,
        wrong_slot=-1,
        num_tokens=num_tokens,
        num_slots=kv_layer.shape[1] * kv_layer.shape[2],
        words=words,
        key=key.data_ptr(),
        key_stride=key.stride(0) * key.element_size() // 4,
        value=value.data_ptr(),
        value_stride=value.stride(0) * value.element_size() // 4,
        keys=keys,
        values=keys + kv_layer.nbytes // 2,
        slots=slot_mapping.data_ptr(),
    )
    return Call(write_tokens, arguments, num_threads or threads_for(COPYING * num_tokens * words))


def _adjoining(heads: Tensor) -> bool:
    """Whether each token's heads are contiguous, and tokens begin at whole words of four bytes."""
    _, num_heads, head_dim = heads.shape
    whole = heads.stride(0) * heads.element_size() % 4 == 0 and heads.data_ptr() % 4 == 0
    return whole and heads.stride(0) >= num_heads * head_dim and heads.stride()[1:] == (head_dim, 1)
