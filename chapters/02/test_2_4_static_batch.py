"""Checks of exercise 2.4: a static batch, with its padding and its longest member."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.ch02.static_batch import StaticBatch
from minipaged.course.expect import expect_equal
from minipaged.sim.lengths import RequestLengths


def _lengths(*pairs: tuple[int, int]) -> list[RequestLengths]:
    return [RequestLengths(prompt, output) for prompt, output in pairs]


def _draw_batch(members: list[RequestLengths]) -> str:
    """A line for each member: its rows from the first step to the last, prompts padded on the left."""
    prompt = max(each.num_prompt_tokens for each in members)
    output = max(each.num_output_tokens for each in members)
    lines = [
        "_" * (prompt - each.num_prompt_tokens)
        + "p" * each.num_prompt_tokens
        + " "
        + "d" * (each.num_output_tokens - 1)
        + "." * (output - each.num_output_tokens)
        for each in members
    ]
    return "\n".join([*lines, "_ padding   p prompt   d decoded   . idle"])


def _expect_batch(
    got: object, want: StaticBatch, members: list[RequestLengths], case: str, order: str = ""
) -> None:
    rules = {
        "num_requests": "every request is in one batch",
        "num_steps": "each step gives every member one token, so the longest output decides",
        "num_computed": "each member's prompt, and every output token but its last",
        "num_padding": "every prompt is padded to the longest prompt of its batch",
        "num_idle": "a finished member keeps its row until the longest member has finished",
    }
    for name, rule in rules.items():
        expect_equal(
            getattr(got, name, None),
            getattr(want, name),
            case=f"{name} of {case}",
            rule=rule + order,
            state=_draw_batch(members),
        )


def _counted(members: list[RequestLengths]) -> StaticBatch:
    """The right answer, by counting the marks in the drawing."""
    drawn = _draw_batch(members).rsplit("\n", 1)[0]
    steps = max(len(line.partition(" ")[2]) for line in drawn.splitlines()) + 1
    computed = drawn.count("p") + drawn.count("d")
    return StaticBatch(len(members), steps, computed, drawn.count("_"), drawn.count("."))


@pytest.mark.exercise("2.4")
@pytest.mark.parametrize(
    "members",
    [
        _lengths((1, 1)),
        _lengths((4, 3)),
        _lengths((4, 3), (4, 3)),
        _lengths((7, 1), (2, 1)),
        _lengths((3, 2), (3, 4)),
        _lengths((3, 2), (5, 4)),
        _lengths((1, 1), (1, 9), (6, 1)),
    ],
)
def test_one_batch(code: ModuleType, members: list[RequestLengths]) -> None:
    pairs = [(each.num_prompt_tokens, each.num_output_tokens) for each in members]
    case = f"static_batch of (prompt, output) {pairs}"
    _expect_batch(code.static_batch(members), _counted(members), members, case)


@pytest.mark.exercise("2.4")
@given(
    pairs=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=9),
    batch_size=st.integers(1, 5),
)
def test_a_queue_of_batches(code: ModuleType, pairs: list[tuple[int, int]], batch_size: int) -> None:
    queue = _lengths(*pairs)
    batches = [queue[i : i + batch_size] for i in range(0, len(queue), batch_size)]
    got = code.serve_static(queue, batch_size)
    case = f"serve_static of (prompt, output) {pairs}, {batch_size} at a time"
    expect_equal(
        len(got),
        len(batches),
        case=f"number of batches of {case}",
        rule="first come, first served; the last batch may be smaller",
    )
    for number, (found, members) in enumerate(zip(got, batches, strict=True)):
        _expect_batch(
            found,
            _counted(members),
            members,
            f"batch {number} of {case}",
            order="; first come, first served: a batch takes the next requests of the queue, in order",
        )


@pytest.mark.exercise("2.4")
def test_no_requests(code: ModuleType) -> None:
    expect_equal(code.serve_static([], 4), [], case="serve_static([], 4)", rule="no requests, no batches")
