"""Decode steps with wrong block tables or slots raise an error, and damage nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from minipaged import LLMEngine
from minipaged.attention.paged_layout import Located
from minipaged.runner.step_batch import StepBatch
from tests.cpu.recorded import PROMPTS, make
from tests.engine.driving import assert_greedy, check_and_poison, drain, greedy
from tests.model_pairs import Pair


def mislocate(
    engine: LLMEngine, monkeypatch: pytest.MonkeyPatch, change: Callable[[Located], Located]
) -> None:
    """From now on, steps get wrong places for the sequences."""
    layout = engine._runner._layout
    located = layout.locate

    def locate(batch: StepBatch) -> Located:
        right = located(batch)
        assert isinstance(right, Located)
        return change(right)

    monkeypatch.setattr(layout, "locate", locate)


def test_table_that_is_too_short(compilable: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the buffer has the table of an older step, whose blocks exist."""
    engine = make(compilable)
    engine.add_request("0", PROMPTS[0], greedy(5))
    engine.step()
    mislocate(engine, monkeypatch, lambda right: right._replace(block_tables=right.block_tables[:, :-1]))
    with pytest.raises(IndexError, match="too short"):
        engine.step()


@pytest.mark.parametrize(
    ("field", "wrong", "message"),
    [
        ("slot_mapping", 240, "slot 240 of token 0 is not one of the cache's 240"),
        ("slot_mapping", -1, "slot -1 of token 0"),
        ("block_tables", 60, "a block that is not one of the 60"),
        ("block_tables", -5, "a block that is not one of the 60"),
    ],
)
@pytest.mark.parametrize("eager", [False, True])
def test_wrong_places_are_refused(
    compilable: Pair, monkeypatch: pytest.MonkeyPatch, field: str, wrong: int, message: str, eager: bool
) -> None:
    engine = make(compilable, enforce_eager=eager)
    engine.add_request("0", PROMPTS[0], greedy(5))
    engine.step()
    mislocate(
        engine,
        monkeypatch,
        lambda right: right._replace(**{field: np.full_like(getattr(right, field), wrong)}),
    )
    with pytest.raises(IndexError, match=message):
        engine.step()
    monkeypatch.undo()
    (output,) = drain(engine, after_step=check_and_poison).values()  # later steps do not see the wrong places
    assert_greedy(compilable.oracle, output, 5)
