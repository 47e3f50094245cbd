"""BlockManager's three methods: append, fork, free. The paper's own examples are in
`test_paper_block_numbers.py`."""

from __future__ import annotations

import pytest

from tests.kv.sequences import compute, computed, forked, hits, make_manager, make_request, state


def test_of_four_sharers_three_copy() -> None:
    manager = make_manager(10)
    samples = [computed(manager, range(6))]
    samples += [forked(manager, samples[0]) for _ in range(3)]
    for seq in samples:
        seq.token_ids.append(50 + seq.index)
    assert [len(compute(manager, seq)) for seq in samples] == [1, 1, 1, 0]
    assert len({seq.block_table[1] for seq in samples}) == 4
    assert len({seq.block_table[0] for seq in samples}) == 1


def test_full_blocks_are_never_copied() -> None:
    manager = make_manager(10)
    parent = computed(manager, range(8))
    child = forked(manager, parent)
    for seq in (parent, child):
        seq.token_ids.append(9)
        assert compute(manager, seq) == []
    assert list(parent.block_table)[:2] == list(child.block_table)[:2]
    assert parent.block_table[2] != child.block_table[2]


def test_a_long_append_copies_one_block_and_grows() -> None:
    manager = make_manager(12)
    parent = computed(manager, range(6))
    child = forked(manager, parent)
    child.token_ids += range(20, 29)  # 15 tokens: four blocks
    copies = compute(manager, child)
    assert [copy.source for copy in copies] == [parent.block_table[1]]
    assert len(set(child.block_table)) == 4
    assert set(child.block_table) & set(parent.block_table) == {parent.block_table[0]}


@pytest.mark.parametrize("num_tokens", range(9))
def test_fork_shares_the_blocks_of_what_both_agree_on(num_tokens: int) -> None:
    manager = make_manager(10)
    parent = computed(manager, range(9))
    child = forked(manager, parent, num_tokens)
    num_shared = -(-num_tokens // 4)
    assert list(child.block_table) == list(parent.block_table)[:num_shared]
    assert child.num_computed_tokens == num_tokens
    assert [manager.pool.ref_cnt[b] for b in parent.block_table] == [2] * num_shared + [1] * (3 - num_shared)
    assert child.prefix_ids == parent.prefix_ids[: num_tokens // 4]
    manager.check_invariants([make_request(parent, child)])


@pytest.mark.parametrize("caching", [True, False])
def test_an_append_that_fails_changes_nothing(caching: bool) -> None:
    manager = make_manager(4, caching=caching)
    parent = computed(manager, range(6))
    child = forked(manager, parent)
    child.token_ids += range(20, 30)
    before = state(manager, parent, child)
    # One copy and two more blocks are needed, but only one block is free.
    assert manager.append(child, 10) is None
    assert state(manager, parent, child) == before


def test_an_append_that_fails_for_the_copy_alone() -> None:
    manager = make_manager(3)
    parent = computed(manager, range(6))
    child = forked(manager, parent)
    child.token_ids.append(9)
    before = state(manager, parent, child)
    assert manager.append(child, 1) is None
    assert state(manager, parent, child) == before
    manager.free(parent)
    assert manager.append(child, 1) == [], "nobody shares it any more"


def test_an_append_that_fails_leaves_a_cached_block_cached() -> None:
    manager = make_manager(3)
    parent = computed(manager, range(8))
    child = forked(manager, parent, 6)
    manager.free(parent)
    child.token_ids += range(20, 24)
    before = state(manager, child)
    assert manager.append(child, 4) is None
    assert state(manager, child) == before
    assert len(hits(manager, range(9))) == 2


def test_the_last_block_of_the_pool_can_be_had() -> None:
    manager = make_manager(4)
    seq = computed(manager, range(12))
    assert manager.pool.num_free == 0
    seq.token_ids.append(12)
    assert manager.append(seq, 1) is None


def test_alone_with_a_cached_block() -> None:
    """A child writes in place into a block that its parent had filled and cached.

    The child agrees with only the first six tokens of that block. After its write, no prefix hit may find
    the block by its old contents.
    """
    manager = make_manager(10)
    parent = computed(manager, range(8))
    child = forked(manager, parent, 6)
    head, tail = parent.block_table
    manager.free(parent)
    assert hits(manager, range(9)) == [head, tail]
    child.token_ids.append(99)
    assert compute(manager, child) == []
    assert child.block_table[1] == tail
    assert hits(manager, range(9)) == [head]
    child.token_ids.append(98)
    compute(manager, child)
    assert hits(manager, [0, 1, 2, 3, 4, 5, 99, 98, 7]) == [head, tail], "it can be found by the new ones"
    manager.check_invariants([make_request(child)])


def test_a_shared_cached_block_is_copied_and_stays_cached() -> None:
    manager = make_manager(10)
    parent = computed(manager, range(8))
    child = forked(manager, parent, 6)
    child.token_ids.append(99)
    assert [copy.source for copy in compute(manager, child)] == [parent.block_table[1]]
    assert hits(manager, range(9)) == list(parent.block_table)


def test_free_gives_up_the_last_block_first() -> None:
    manager = make_manager(7)
    seq = computed(manager, range(14))  # three full blocks, and a last one with two tokens
    assert list(seq.block_table) == [1, 2, 3, 4]
    manager.free(seq)
    assert list(manager.pool.free_queue) == [4, 5, 6, 3, 2, 1]
    assert (len(seq.block_table), seq.prefix_ids, seq.num_computed_tokens) == (0, [], 0)
    assert seq.token_ids == list(range(14)), "the tokens stay"


def test_free_twice_is_free() -> None:
    manager = make_manager(7)
    seq, other = computed(manager, range(6)), computed(manager, range(50, 56))
    manager.free(seq)
    before = state(manager, seq, other)
    manager.free(seq)
    assert state(manager, seq, other) == before


def test_free_leaves_shared_blocks_to_the_others() -> None:
    manager = make_manager(7)
    parent = computed(manager, range(6))
    child = forked(manager, parent)
    blocks = list(parent.block_table)
    manager.free(parent)
    assert list(child.block_table) == blocks
    assert not set(blocks) & set(manager.pool.free_queue)
    manager.free(child)
    assert manager.pool.num_free == 6
