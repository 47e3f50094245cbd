"""What the compiled halves of a layer are given. Without numba, for which loading a model need not wait."""

from __future__ import annotations

import ctypes


def _fields(*names: str, floats: tuple[str, ...] = ()) -> tuple[tuple[str, type], ...]:
    return tuple((name, ctypes.c_float if name in floats else ctypes.c_int64) for name in names)


class BeforeArguments(ctypes.Structure):
    """What comes before attention. Tensors are given by their addresses; 0 is none.

    The first three are counters of parts. `barrier` is the address of the function that waits for the other
    threads, or 0. x is room for float32 `[num_tokens, hidden_size]`.
    """

    _fields_ = _fields(
        *("next_part", "next_1", "next_2", "barrier", "num_threads"),
        *("num_tokens", "hidden_size", "num_queries", "num_kv_heads", "head_dim", "eps"),
        *("norm", "qkv", "qkv_bias", "q_norm", "k_norm", "cos", "sin", "hidden", "x", "heads"),
        floats=("eps",),
    )


class AfterArguments(ctypes.Structure):
    """What comes after attention: as `BeforeArguments`, with five counters.

    `attended_size` is that of one token. x has room for float32 of the larger of it and `hidden_size`,
    `gated` for `[num_tokens, intermediate_size]`.
    """

    _fields_ = _fields(
        *(
            "next_part",
            "next_1",
            "next_2",
            "next_3",
            "next_4",
            "barrier",
            "num_threads",
        ),
        *("num_tokens", "hidden_size", "attended_size", "intermediate_size", "eps"),
        *("norm", "o", "o_bias", "gate_up", "down", "hidden", "attended", "x", "gated", "result"),
        floats=("eps",),
    )
