"""A message shows the simplest case that fails, and its likely cause."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from minipaged.course import registry, zoo
from minipaged.course.ch02.attention import likely_cause
from minipaged.course.results import by_exercise
from tests.course.many_runs import Run, run_many

FIRST = {
    # (exercise, bug): texts that the message has, and texts that it does not have
    ("1.1", "forgets_the_values"): (["bytes_per_token(1, 1, 1, 1)", "a key and a value"], []),
    ("1.1", "forgets_the_layers"): (["bytes_per_token(3, 1, 1, 1)", "this is the result for one layer"], []),
    ("1.1", "counts_bits"): (["bytes, not bits"], []),
    ("1.2", "rounds_up"): (["num_blocks_that_fit(1000, 1.0, 0, 0, 300)"], []),
    ("1.2", "forgets_the_null_block"): (["max_model_len_that_fits(1, 16)"], []),
    ("1.3", "whole_requests_only"): (["not rounded to whole requests"], []),
    ("1.3", "always_one_block_more"): (["max_concurrency(10, 16, 16)", "there is no further block"], []),
    ("1.4", "reservation_includes_internal"): (["reservation of 1 region in 16 slots"], []),
    ("1.5", "more_requests_than_there_are"): (["no more requests than the queue has"], []),
    ("2.1", "loses_the_rest"): (["allocate_first_fit(free, 3) with slots 2 to 9 free"], []),
    ("2.2", "keys_twice"): (["with Q = 1"], []),
    ("2.3", "forgets_the_scale"): (["the result with scale 1"], ["sees keys", "mask"]),
    ("2.3", "divides_by_the_scale"): (["divided by `scale`"], ["sees keys", "mask"]),
    ("2.3", "softmax_over_the_heads"): (["sum to 1 over the keys"], ["sees keys"]),
    ("2.3", "softmax_over_the_queries"): (["sum to 1 over the keys"], ["sees keys"]),
    ("2.3", "masks_after_the_softmax"): (["sum to 1 over the keys", "after the mask"], ["sees keys"]),
    ("2.3", "no_mask"): (["query [2, 1, 8]", "sees keys"], []),
    ("2.3", "masks_with_zero"): (["with 0, the key keeps a weight", "sees keys"], []),
    ("2.3", "heads_in_turns"): (["reads KV head h // group"], ["sees keys"]),
    ("2.4", "computes_the_last_token"): (["[(1, 1)]"], []),
    ("3.1", "rounds_up"): (["translate(3, 4)"], []),
    ("3.2", "includes_the_end"): (["0, 1, block_size=4"], []),
    ("3.3", "never_takes_the_last_one"): (["grow([], 1, block_size=4, FreeList([7]))"], []),
    ("3.4", "forgets_the_values"): (["into slots [9]", "Only the keys were written"], ["a copy"]),
    ("3.4", "writes_into_a_copy"): (["into slots [9]", "a copy"], []),
    ("3.4", "mixes_keys_and_values"): (["block_table=[3]", "keys come first"], []),
    ("3.5", "forgets_the_scale"): (["one decode, in one block", "the result with scale 1"], []),
    ("4.3", "forgets_that_copies_need_room"): (
        ["append([1], 3, 4, 4, pool)", "A copy takes a free block"],
        [],
    ),
    ("4.3", "leaves_a_block_unused"): (["append([1], 4, 5, 4, pool)"], []),
    ("4.3", "writes_into_shared_blocks"): (["append([1], 3, 4, 4, pool)"], []),
    ("4.5", "copies_after_the_write"): (["2 samples of a prompt of 3 tokens"], []),
    ("4.6", "forgets_the_past"): (["best_extensions([-1.0], [[(2, -1.0)]], 1)"], []),
    ("4.6", "forks_by_rank"): (["follow([[1], [2]], [1, 1], pool)"], []),
}


@pytest.mark.parametrize("number", sorted({int(exercise[0]) for exercise, _ in FIRST}))
def test_the_simplest_case_and_its_cause_come_first(number: int, tmp_path: Path) -> None:
    chapter = registry.chapter(number)
    bugs = [mutant for mutant in zoo.mutants(chapter) if (mutant.exercise, mutant.name) in FIRST]
    assert len(bugs) == sum(exercise.startswith(f"{number}.") for exercise, _ in FIRST)
    runs = []
    for mutant in bugs:
        folder = tmp_path / mutant.name
        folder.mkdir()
        zoo.write_mutant(chapter, mutant, folder)
        runs.append(Run(str(folder), mutant.exercise))
    for mutant, results in zip(bugs, run_many(chapter, runs), strict=True):
        (text,) = by_exercise(chapter, results)[0].texts
        said = " ".join(text.partition("  also wrong")[0].split())
        there, absent = FIRST[mutant.exercise, mutant.name]
        assert all(each in said for each in there), text
        assert not any(each in said for each in absent), text


def test_a_cause_that_may_be_another_one_is_not_named() -> None:
    query, keys, values = (
        torch.randn(n, 1, 4, generator=torch.Generator().manual_seed(n)) for n in (1, 2, 2)
    )
    # The query sees only the first of two keys. It may begin at position 0, or not see its own key.
    assert likely_cause(values[:1], query, keys, values, 0.5) is None
    assert likely_cause(values[:1] + 1, query, keys, values, 0.5) is None
