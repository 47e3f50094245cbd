"""Checks of exercise 4.5: parallel sampling, and how many blocks it saves."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from minipaged.course.ch04.counts import BLOCK_SIZE, draw_pool, expect_counts
from minipaged.course.ch04.pools import pool_handing_out
from minipaged.course.expect import expect_close, expect_equal, expect_error
from minipaged.errors import OutOfBlocksError
from minipaged.kv.block_pool import BlockPool

if TYPE_CHECKING:
    from torch import Tensor


@pytest.mark.exercise("4.5")
@pytest.mark.parametrize("num_samples", [1, 2, 5])
def test_samples_begin_with_one_set_of_blocks(code: ModuleType, num_samples: int) -> None:
    pool = pool_handing_out(9, [7, 1])
    prompt = [pool.allocate(), pool.allocate()]
    found = code.start_samples(prompt, num_samples, pool.ref_cnt)
    tables = {f"A{i}": table for i, table in enumerate(found, 1)}
    case = f"start_samples([7, 1], {num_samples}, ref_cnt)"
    rule = "the first sample has the prompt's table, and each further sample a fork of it"
    expect_equal(found, [[7, 1]] * num_samples, case=case, rule=rule, state=draw_pool(tables, pool))
    expect_counts(case, tables, pool)
    found[-1].append(2)
    expect_equal(
        [len(table) for table in found],
        [2] * (num_samples - 1) + [3],
        case=f"the lengths of the tables, one block added to the last, after {case}",
        rule="each sample has a list of its own",
    )


def _cache_and_words(num_blocks: int, num_samples: int, steps: int) -> tuple[Tensor, Tensor]:
    """An unwritten cache, and keys and values with a different number for each token."""
    import torch

    cache = torch.full((2, 2, num_blocks, BLOCK_SIZE, 1, 2), -1.0)
    words = 100.0 + torch.arange(float(steps * num_samples)).view(steps, num_samples, 1, 1, 1, 1)
    return cache, words.expand(steps, num_samples, 2, 2, 1, 2)


def _read(cache: Tensor, table: Sequence[int], num_tokens: int) -> list[list[int]]:
    """The numbers of a sequence's tokens, for the keys and the values of each layer."""
    return [
        [int(half[table[i // BLOCK_SIZE], i % BLOCK_SIZE, 0, 0]) for i in range(num_tokens)]
        for layer in cache
        for half in layer
    ]


def _expect_samples_decode(
    code: ModuleType, num_prompt_tokens: int, num_samples: int, num_steps: int
) -> tuple[list[list[int]], BlockPool, int]:
    """Decode and check. Returns the samples' tables, the pool, and the number of copied blocks."""
    pool = BlockPool(2 + num_samples * (-(-(num_prompt_tokens + num_steps) // BLOCK_SIZE)))
    prompt = [pool.allocate() for _ in range(-(-num_prompt_tokens // BLOCK_SIZE))]
    cache, words = _cache_and_words(pool.num_blocks, num_samples, num_steps)
    for position in range(num_prompt_tokens):
        cache[:, :, prompt[position // BLOCK_SIZE], position % BLOCK_SIZE] = float(position)
    tables = code.start_samples(prompt, num_samples, pool.ref_cnt)
    named = {f"A{i}": table for i, table in enumerate(tables, 1)}
    num_copies = 0
    for step in range(num_steps):
        position = num_prompt_tokens + step
        num_copies += len(code.decode_step(cache, tables, position, words[step], pool))
        case = f"{num_samples} samples of a prompt of {num_prompt_tokens} tokens, after {step + 1} steps"
        expect_counts(case, named, pool)
        for i, (name, table) in enumerate(named.items()):
            own = [100 + each * num_samples + i for each in range(step + 1)]
            text = [*range(num_prompt_tokens), *own]
            for half, got in enumerate(_read(cache, table, position + 1)):
                expect_equal(
                    got,
                    text,
                    case=f"what {name} reads in layer {half // 2}, {'keys' if half % 2 == 0 else 'values'}: "
                    f"{case}. Prompt tokens are 0, 1, …; those of {name} 100 + {i}, and so on",
                    rule="each sample reads its own tokens, in every layer; check the order of the copies, "
                    "and the axes of new_kv",
                    state=draw_pool(named, pool),
                )
    return tables, pool, num_copies


@pytest.mark.exercise("4.5", "decode_step")
@pytest.mark.parametrize(
    ("num_prompt_tokens", "num_samples", "num_copies"),
    [(1, 1, 0), (4, 2, 0), (3, 2, 1), (7, 2, 1), (8, 3, 0), (5, 4, 3)],
)
def test_samples_decode_side_by_side(
    code: ModuleType, num_prompt_tokens: int, num_samples: int, num_copies: int
) -> None:
    _, _, copied = _expect_samples_decode(code, num_prompt_tokens, num_samples, 6)
    expect_equal(
        copied,
        num_copies,
        case=f"copies that decode_step returned for {num_samples} samples of {num_prompt_tokens} tokens",
        rule="if a prompt's last block is not full, it is copied for each sample but one",
    )


@pytest.mark.exercise("4.5", "decode_step")
def test_a_step_without_room_is_refused(code: ModuleType) -> None:
    pool = BlockPool(2)
    cache, words = _cache_and_words(2, 2, 1)
    tables = code.start_samples([pool.allocate()], 2, pool.ref_cnt)
    with expect_error(OutOfBlocksError, case="two samples want to write into one block; no other is free"):
        code.decode_step(cache, tables, 3, words[0], pool)


@pytest.mark.exercise("4.5")
@pytest.mark.parametrize(
    ("tables", "saving"),
    [
        ([], 0.0),
        ([[5]], 0.0),
        ([[5], [5]], 0.5),
        ([[1, 2], [3, 4]], 0.0),
        ([[7, 1], [7, 3]], 0.25),
        ([[1], [1], [1], [1]], 0.75),
        ([[1, 2, 3], [1, 2, 4], [1, 5]], 3 / 8),
    ],
)
def test_saved_over_unshared(code: ModuleType, tables: list[list[int]], saving: float) -> None:
    expect_close(
        code.sharing_saving(tables),
        saving,
        case=f"sharing_saving({tables})",
        rule="divide the entries that need no block of their own by all entries of the tables",
    )


@pytest.mark.exercise("4.5")
@pytest.mark.parametrize(("num_samples", "saving"), [(2, 0.36), (4, 0.54), (6, 0.60)])
def test_the_article_s_table(code: ModuleType, num_samples: int, saving: float) -> None:
    """A prompt of 300 tokens and 100 new ones, in blocks of 16."""
    import torch

    pool = BlockPool(200)
    cache = torch.zeros(1, 2, 200, 16, 1, 1)
    tables = code.start_samples([pool.allocate() for _ in range(19)], num_samples, pool.ref_cnt)
    for position in range(300, 400):
        code.decode_step(cache, tables, position, torch.zeros(num_samples, 1, 2, 1, 1), pool)
    expect_close(
        code.sharing_saving(tables),
        saving,
        case=f"{num_samples} samples, 300 tokens of prompt, 100 new ones each, blocks of 16",
        rule="18 full blocks are shared; the nineteenth is copied, and each sample ends with 25",
    )
