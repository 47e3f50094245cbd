"""The examples of section 4 of the paper on the real BlockManager, block number by block number.

The paper uses free blocks in an arbitrary order. Our pool hands them out in the order of its free queue. So
each example first puts the queue into the paper's order. One number must differ: the paper's Fig. 9 uses
block 0, which is our null block.
"""

from __future__ import annotations

import pytest

from minipaged.kv.block_manager import BlockManager
from minipaged.kv.block_pool import BlockPool
from minipaged.kv.cache import BlockCopy
from minipaged.request import Sequence
from tests.kv.sequences import compute, computed, forked, make_manager, make_request


def hand_out(pool: BlockPool, *block_ids: int) -> None:
    """Let the pool hand out these free blocks next, in this order."""
    for block_id in reversed(block_ids):
        pool.free_queue.remove(block_id)
        pool.free_queue.push_front(block_id)


def blocks(seq: Sequence) -> list[int]:
    return list(seq.block_table)


def counts(manager: BlockManager) -> dict[int, int]:
    """The reference counts of the blocks in use."""
    pool = manager.pool
    return {block_id: count for block_id, count in enumerate(pool.ref_cnt) if block_id and count}


def num_filled(seq: Sequence, block_size: int = 4) -> list[int]:
    """The column "# filled" of the paper's block tables."""
    return [min(block_size, seq.num_computed_tokens - i * block_size) for i in range(len(seq.block_table))]


def decode(manager: BlockManager, seq: Sequence, token_id: int) -> list[BlockCopy]:
    """Add one token, and compute it."""
    seq.token_ids.append(token_id)
    return compute(manager, seq)


def test_figure_6() -> None:
    """A prompt of 7 tokens, "Four score and seven years ago our", in blocks of 4."""
    manager = make_manager(9)
    hand_out(manager.pool, 7, 1, 3)
    seq = computed(manager, range(7))
    assert (blocks(seq), num_filled(seq)) == ([7, 1], [4, 3])

    assert decode(manager, seq, 7) == []  # "fathers" fills the last slot
    assert (blocks(seq), num_filled(seq)) == ([7, 1], [4, 4])

    assert decode(manager, seq, 8) == []  # "brought" needs another block
    assert (blocks(seq), num_filled(seq)) == ([7, 1, 3], [4, 4, 1])
    assert counts(manager) == {7: 1, 1: 1, 3: 1}
    manager.check_invariants([make_request(seq)])


def test_figure_8() -> None:
    """Two samples of the prompt of Fig. 6. The first to write copies block 1; the second does not."""
    manager = make_manager(9)
    hand_out(manager.pool, 7, 1, 3)
    a1 = computed(manager, range(7))
    a2 = forked(manager, a1)
    assert blocks(a1) == blocks(a2) == [7, 1]
    assert counts(manager) == {7: 2, 1: 2}

    assert decode(manager, a1, 100) == [BlockCopy(source=1, target=3)]  # "fathers"
    assert (blocks(a1), blocks(a2)) == ([7, 3], [7, 1])
    assert counts(manager) == {7: 2, 1: 1, 3: 1}

    assert decode(manager, a2, 200) == []  # "mothers", in place
    assert (blocks(a1), blocks(a2)) == ([7, 3], [7, 1])
    assert counts(manager) == {7: 2, 1: 1, 3: 1}
    manager.check_invariants([make_request(a1, a2)])


PROMPT_BLOCK = 13
"""Our block for the paper's block 0 in Fig. 9."""


def four_tokens(manager: BlockManager, *sequences: Sequence) -> None:
    """Let each sequence fill one more block with tokens of its own."""
    for seq in sequences:
        start = seq.num_tokens
        seq.token_ids += [100 * (seq.index + 1) + start + i for i in range(4)]
        assert compute(manager, seq) == []


def beam_candidates(manager: BlockManager) -> list[Sequence]:
    """The four candidates of Fig. 9 before the dotted line, with four full blocks each."""
    hand_out(manager.pool, PROMPT_BLOCK)
    zero = computed(manager, range(4))
    three = forked(manager, zero)  # it differs from the others from the second block on
    three.index = 3
    four_tokens(manager, zero, three)
    four_tokens(manager, zero, three)
    one, two = forked(manager, zero), forked(manager, zero)  # they differ from the fourth on
    two.index = 2
    four_tokens(manager, zero, one, two, three)
    return [zero, one, two, three]


@pytest.mark.parametrize("caching", [True, False])
def test_figure_9(caching: bool) -> None:
    """Beam search of width 4. All four next candidates are children of candidates 1 and 2."""
    manager = make_manager(14, caching=caching)
    old = beam_candidates(manager)
    prompt = PROMPT_BLOCK
    assert [blocks(seq) for seq in old] == [
        [prompt, 1, 3, 5],
        [prompt, 1, 3, 6],
        [prompt, 1, 3, 7],
        [prompt, 2, 4, 8],
    ]
    assert counts(manager) == {prompt: 4, 1: 3, 2: 1, 3: 3, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1}
    manager.check_invariants([make_request(*old)])

    # Fork first, and then free the old candidates: so no block that is still needed ever has a count of 0.
    new = [forked(manager, old[parent]) for parent in (1, 1, 2, 2)]
    before = set(counts(manager))
    for seq in old:
        manager.free(seq)
    assert before - set(counts(manager)) == {2, 4, 5, 8}
    assert counts(manager) == {prompt: 4, 1: 4, 3: 4, 6: 2, 7: 2}

    if not caching:
        # Freed blocks without a hash are reused at once. Those with a hash are queued after 9 to 12.
        hand_out(manager.pool, 9, 10, 11, 12)
    for token_id, seq in enumerate(new):
        assert decode(manager, seq, token_id) == []
    assert [blocks(seq) for seq in new] == [
        [prompt, 1, 3, 6, 9],
        [prompt, 1, 3, 6, 10],
        [prompt, 1, 3, 7, 11],
        [prompt, 1, 3, 7, 12],
    ]
    assert set(manager.pool.free_queue) == {2, 4, 5, 8}
    manager.check_invariants([make_request(*new)])


def used(manager: BlockManager) -> int:
    return manager.pool.num_blocks - 1 - manager.pool.num_free


@pytest.mark.parametrize(
    ("samples", "unshared", "shared", "saved"), [(2, 50, 32, 36.0), (4, 100, 46, 54.0), (6, 150, 60, 60.0)]
)
def test_the_articles_table(samples: int, unshared: int, shared: int, saved: float) -> None:
    """Block 16, a prompt of 300 tokens, 100 new tokens for each sample."""
    apart = make_manager(200, block_size=16, caching=False)
    together = make_manager(200, block_size=16)
    first = computed(together, range(300))
    forks = [first, *(forked(together, first) for _ in range(samples - 1))]
    alone = [computed(apart, range(300)) for _ in range(samples)]
    assert used(together) == 19, "18 full blocks, and one with 12 tokens"
    num_copies = 0
    for step in range(100):
        for sample in range(samples):
            num_copies += len(decode(together, forks[sample], 1000 * sample + step))
            decode(apart, alone[sample], 1000 * sample + step)
    assert (used(apart), used(together)) == (unshared, shared)
    assert round(100 * (1 - used(together) / used(apart)), 1) == saved
    assert num_copies == samples - 1
    together.check_invariants([make_request(*forks)])
