"""The loop that writes keys and values to the cache on a CPU.

Importing this module imports numba.
"""

from __future__ import annotations

import ctypes

from minipaged.cpu.compiler.compiled import shared_work
from minipaged.cpu.compiler.instructions import as_array, pointer_to, take_part


class WriteArguments(ctypes.Structure):
    """The keys and values of `num_tokens` tokens, and the slots to write them to.

    Each key and each value has `words` words of four bytes. Strides are in words. A part of the work is one
    token. `wrong_slot` is set to the index of a token whose slot is not in `[0, num_slots)`.
    """

    _fields_ = (
        ("next_part", ctypes.c_int64),
        ("wrong_slot", ctypes.c_int64),
        ("num_tokens", ctypes.c_int64),
        ("num_slots", ctypes.c_int64),
        ("words", ctypes.c_int64),
        ("key", ctypes.c_int64),
        ("key_stride", ctypes.c_int64),
        ("value", ctypes.c_int64),
        ("value_stride", ctypes.c_int64),
        ("keys", ctypes.c_int64),
        ("values", ctypes.c_int64),
        ("slots", ctypes.c_int64),
    )


@shared_work(WriteArguments)
def write_tokens(pointer):
    """Copy each token's key and value to its slot, word by word, so the dtype does not matter."""
    a = as_array(pointer, 1)[0]
    slots = as_array(pointer_to(a.slots, "int64"), (a.num_tokens,))
    key = as_array(pointer_to(a.key, "int32"), (a.num_tokens, a.key_stride))
    value = as_array(pointer_to(a.value, "int32"), (a.num_tokens, a.value_stride))
    keys = as_array(pointer_to(a.keys, "int32"), (a.num_slots, a.words))
    values = as_array(pointer_to(a.values, "int32"), (a.num_slots, a.words))
    while True:
        token = take_part(pointer)
        if token >= a.num_tokens:
            break
        slot = slots[token]
        if slot < 0 or slot >= a.num_slots:
            a.wrong_slot = token
            continue
        for word in range(a.words):
            keys[slot, word] = key[token, word]
            values[slot, word] = value[token, word]
