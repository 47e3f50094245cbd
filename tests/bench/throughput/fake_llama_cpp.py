"""A stand-in for the package `llama_cpp`: a KV memory that holds tokens, and a model that is a sum.

The next token depends on all tokens of the sequence and their positions. So a token that is missing, doubled
or shared wrongly changes the output.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace

VOCAB_SIZE = 101
memory: dict[int, dict[int, int]] = {}  # sequence -> position -> token
decoded: list[int] = []  # how many tokens each call computed
_logits: dict[int, object] = {}


def next_token(tokens: list[int]) -> int:
    """The model: the token that follows these tokens."""
    return sum((position + 1) * (token + 3) for position, token in enumerate(tokens)) % VOCAB_SIZE


def _constant(value: object) -> Callable[..., object]:
    return lambda *_: value


llama_backend_init = _constant(None)
llama_model_load_from_file = _constant("model")
llama_init_from_model = _constant("context")
llama_get_memory = _constant("memory")
llama_model_get_vocab = _constant("vocab")
llama_vocab_n_tokens = _constant(VOCAB_SIZE)
llama_print_system_info = _constant(b"a stand-in")
llama_n_ctx = _constant(4096)


def llama_model_default_params() -> SimpleNamespace:
    return SimpleNamespace()


def llama_context_default_params() -> SimpleNamespace:
    return SimpleNamespace()


def llama_batch_init(size: int, _: int, __: int) -> SimpleNamespace:
    lists = {name: [0] * size for name in ("token", "pos", "n_seq_id", "logits")}
    return SimpleNamespace(n_tokens=0, seq_id=[[0] for _ in range(size)], **lists)


def llama_memory_clear(_: str, __: bool) -> None:
    memory.clear()


def llama_memory_seq_rm(_: str, seq: int, start: int, end: int) -> bool:
    kept = memory.get(seq, {})
    assert end == -1
    memory[seq] = {position: token for position, token in kept.items() if position < start}
    return True


def llama_memory_seq_cp(_: str, source: int, target: int, start: int, end: int) -> None:
    for position in range(start, end):
        memory.setdefault(target, {})[position] = memory[source][position]


def llama_decode(_: str, batch: SimpleNamespace) -> int:
    decoded.append(batch.n_tokens)
    _logits.clear()
    for i in range(batch.n_tokens):
        cells = memory.setdefault(batch.seq_id[i][0], {})
        assert batch.pos[i] == len(cells), "positions must follow one another"
        cells[batch.pos[i]] = batch.token[i]
        if batch.logits[i]:
            row = (ctypes.c_float * VOCAB_SIZE)()
            row[next_token([cells[position] for position in sorted(cells)])] = 1.0
            _logits[i] = ctypes.cast(row, ctypes.POINTER(ctypes.c_float))
            _logits[-1 - i] = row  # keeps the memory alive
    return 0


def llama_get_logits_ith(_: str, i: int) -> object:
    return _logits[i]
