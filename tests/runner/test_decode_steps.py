"""Which engines on a CPU record their decode steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeVar, cast

import pytest
from torch import Tensor

from minipaged.attention.reference import reference_attention
from minipaged.cpu.decoder import CompiledDecoder
from minipaged.kv.block_table import pad_block_tables, slot_mapping
from minipaged.kv.cache import write_kv
from minipaged.loading.loader import LoadedModel
from minipaged.parts import Parts
from tests.cpu.recorded import PROMPTS, make, steps_of
from tests.engine.driving import greedy, make_engine, run
from tests.model_pairs import Pair, load
from tests.oracle import Oracle, make_model

Function = TypeVar("Function", bound=Callable[..., object])


def test_who_has_them(compilable: Pair) -> None:
    assert steps_of(make(compilable))


def their(function: Function) -> Function:
    """A reader's part that does the same as the engine's."""

    @wraps(function)
    def part(*arguments: object) -> object:
        return function(*arguments)

    return cast(Function, part)


def no_decode(
    query: Tensor, kv_layer: Tensor, block_tables: Tensor, seq_lens: Tensor, scale: float, num_splits: int = 1
) -> Tensor:
    """A decode function that these tests never call."""
    raise AssertionError


@pytest.mark.parametrize(
    "options",
    [
        {"enforce_eager": True},
        {"attention_backend": "reference"},
        {"attention_backend": "reference", "compiled_layers": True},
        {"compiled_layers": False},
        {"kv_layout": "contiguous"},
        {"kv_layout": "none"},
        {"parts": Parts(slot_mapping=their(slot_mapping))},
        {"parts": Parts(pad_block_tables=their(pad_block_tables))},
        {"parts": Parts(write_kv=their(write_kv))},
        {"parts": Parts(attention=their(reference_attention))},
        {"parts": Parts(paged_decode=no_decode)},
        {"parts": Parts(paged_decode_split=no_decode)},
    ],
)
def test_who_has_none(compilable: Pair, options: dict[str, object]) -> None:
    """Settings that turn it off, and a reader's parts, which must be called in each layer."""
    assert make(compilable, **options)._runner._decode_steps is None


def test_a_model_whose_layers_are_not_compiled_has_none(nano_model: LoadedModel) -> None:
    engine = make_engine(nano_model, num_blocks=9, max_model_len="auto")
    assert engine._runner._decode_steps is None


def test_heads_that_the_loops_of_attention_are_not_made_for(tmp_path: Path) -> None:
    """The layers are compiled, attention is not."""
    folder = make_model(tmp_path / "narrow", hidden_size=64, head_dim=16)
    engine = make(Pair(load(str(folder)), Oracle.from_folder(folder)))
    assert isinstance(engine._runner._decoder, CompiledDecoder)
    assert engine._runner._decode_steps is None
    for output in run(engine, PROMPTS, greedy(3)):
        assert len(output.outputs[0].token_ids) == 3
