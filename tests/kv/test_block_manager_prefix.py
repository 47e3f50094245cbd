"""BlockManager's prefix reuse: which blocks are found, when, and how many blocks a hit costs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.errors import InvariantError, PromptError
from minipaged.kv.prefix_cache import CachedBlock
from minipaged.request import Sequence
from tests.kv.sequences import compute, computed, forked, hits, make_manager, make_request, state


@pytest.mark.parametrize("block_size", [1, 2, 4, 16])
@pytest.mark.parametrize("num_blocks", [1, 2, 3])
def test_a_prompt_of_k_full_blocks_finds_all_but_the_last(block_size: int, num_blocks: int) -> None:
    """The last token's logits are needed, so the last token is always computed."""
    manager = make_manager(10, block_size)
    length = num_blocks * block_size
    seq = computed(manager, range(length))
    blocks = list(seq.block_table)
    assert hits(manager, range(length)) == blocks[:-1]
    assert hits(manager, range(length + 1)) == blocks
    assert hits(manager, range(length - 1)) == blocks[: (length - 2) // block_size]


def test_only_full_blocks_are_found() -> None:
    manager = make_manager(10)
    seq = computed(manager, range(7))
    assert hits(manager, range(20)) == [seq.block_table[0]]
    assert manager.prefix_cache.block_ids() == {seq.block_table[0]}


def test_a_gap_ends_the_hit() -> None:
    manager = make_manager(10)
    seq = computed(manager, range(16))
    assert hits(manager, [0, 1, 2, 3, 4, 5, 6, 99, *range(8, 16), 0]) == [seq.block_table[0]]


def test_output_tokens_are_found_as_well() -> None:
    manager = make_manager(10)
    seq = computed(manager, range(6))
    for token_id in range(6, 12):
        seq.token_ids.append(token_id)
        compute(manager, seq)
    assert hits(manager, range(13)) == list(seq.block_table)


def test_adopt_revives_free_blocks_and_shares_held_ones() -> None:
    manager = make_manager(10)
    free, held = computed(manager, range(8)), computed(manager, range(8))
    manager.free(free)
    new = Sequence(list(range(9)))
    found = manager.find_prefix(new, None)
    counts = [manager.pool.ref_cnt[hit.block_id] for hit in found]
    manager.adopt_prefix(new, found)
    assert new.num_computed_tokens == 8
    assert list(new.block_table) == [hit.block_id for hit in found]
    assert [manager.pool.ref_cnt[b] for b in new.block_table] == [count + 1 for count in counts]
    assert not set(new.block_table) & set(manager.pool.free_queue)
    assert compute(manager, new) == [], "it writes after the hits, never into them"
    manager.check_invariants([make_request(held), make_request(new)])


def test_looking_takes_nothing() -> None:
    manager = make_manager(10)
    manager.free(computed(manager, range(8)))
    before = state(manager)
    assert len(hits(manager, range(9))) == 2
    assert state(manager) == before


def test_the_tail_of_a_prefix_is_lost_before_its_head() -> None:
    manager = make_manager(6)
    seq = computed(manager, range(16))
    blocks = list(seq.block_table)
    manager.free(seq)
    taken = [manager.pool.allocate() for _ in range(3)]  # a block that was never used, and two of the four
    assert taken[1:] == [blocks[3], blocks[2]]
    assert hits(manager, range(17)) == blocks[:2]


@pytest.mark.parametrize("salt", [None, "red"])
def test_salts(salt: str | None) -> None:
    manager = make_manager(20)
    seq = computed(manager, range(8), salt)
    assert hits(manager, range(9), salt) == list(seq.block_table)
    for other in (None, "red", "blue"):
        if other != salt:
            assert hits(manager, range(9), other) == []
            twin = computed(manager, range(8), other)
            assert hits(manager, range(9), other) == list(twin.block_table)
            assert hits(manager, range(9), salt) == list(seq.block_table)


def test_a_constant_hash_gives_the_same_hits() -> None:
    plain, colliding = make_manager(20), make_manager(20, hash_fn=lambda value: b"")
    prompts = [[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 9, 9, 9, 9], [5, 6, 7, 8, 1, 2, 3, 4]]
    for manager in (plain, colliding):
        for prompt in prompts:
            computed(manager, prompt)
        computed(manager, prompts[0], "red")
    for salt in (None, "red", "blue"):
        for wanted in ([*p, 0] for p in [*prompts, [5, 6, 7, 8, 5, 6, 7, 8], [2, 1, 3, 4, 5, 6, 7, 8]]):
            assert hits(colliding, wanted, salt) == hits(plain, wanted, salt)


def test_without_caching_nothing_is_found_or_kept() -> None:
    manager = make_manager(10, caching=False)
    seq = computed(manager, range(8))
    assert hits(manager, range(9)) == []
    assert manager.prefix_cache.block_ids() == frozenset()
    manager.free(seq)
    assert not any(manager.pool.is_cached(b) for b in range(10))


def test_two_that_computed_the_same_keep_their_own_blocks() -> None:
    manager = make_manager(10)
    first, second = computed(manager, range(8)), computed(manager, range(8))
    assert not set(first.block_table) & set(second.block_table)
    assert first.prefix_ids == second.prefix_ids
    blocks = list(second.block_table)
    manager.free(first)
    while len(manager.pool.free_queue):  # the next sequence overwrites all free blocks
        manager.pool.allocate()
    assert hits(manager, range(9)) == blocks


def test_forget_takes_back_what_was_promised() -> None:
    """The tokens are scheduled and their blocks cached, but then the forward pass fails."""
    manager = make_manager(10)
    seq = computed(manager, range(6))
    seq.token_ids += range(6, 14)
    assert manager.append(seq, 8) == []
    manager.cache_full_blocks(seq, 14, None)
    head = seq.block_table[0]
    assert len(hits(manager, range(15))) == 3
    manager.forget_uncomputed(seq)
    assert hits(manager, range(15)) == [head], "this one had been computed before"
    assert len(seq.prefix_ids) == 1
    compute(manager, seq)
    assert hits(manager, range(15)) == list(seq.block_table)[:3], "and the second try succeeds"
    manager.check_invariants([make_request(seq)])


def test_reset_disturbs_nobody() -> None:
    manager = make_manager(12)
    held, freed = computed(manager, range(8)), computed(manager, range(50, 58))
    child = forked(manager, held)
    blocks = list(held.block_table)
    manager.free(freed)
    manager.reset_prefix_cache()
    assert hits(manager, range(9)) == hits(manager, range(50, 59)) == []
    assert list(held.block_table) == list(child.block_table) == blocks
    for seq in (held, child):
        seq.token_ids += range(8, 13)
        compute(manager, seq)
    manager.check_invariants([make_request(held, child)])
    again = computed(manager, range(8))
    assert hits(manager, range(9)) == list(again.block_table), "the cache fills anew"


def test_can_admit_counts_the_hits_that_must_be_revived() -> None:
    manager = make_manager(4)
    manager.free(computed(manager, range(8)))
    request = make_request(Sequence(list(range(9))))
    found = manager.find_prefix(request.sequences[0], None)
    assert len(found) == 2
    assert manager.can_admit(request, found), "three are free: two hits, and one for the ninth token"
    other = computed(manager, [7])  # takes the one that is neither
    assert len(manager.find_prefix(request.sequences[0], None)) == 2
    assert manager.pool.num_free == 2
    assert not manager.can_admit(request, found), "only one new block is needed, but the hits use both"
    manager.free(other)
    assert manager.can_admit(request, found)


def test_can_admit_takes_no_block_for_a_hit_that_is_held() -> None:
    manager = make_manager(4)
    held = computed(manager, range(8))
    request = make_request(Sequence(list(range(9))))
    found = manager.find_prefix(request.sequences[0], None)
    assert [hit.block_id for hit in found] == list(held.block_table)
    assert manager.pool.num_free == 1
    assert manager.can_admit(request, found)
    computed(manager, [7])
    assert not manager.can_admit(request, found)


@settings(max_examples=60, deadline=None)
@given(
    block_size=st.integers(1, 4),
    num_blocks=st.integers(2, 9),
    cached=st.integers(0, 12),
    held=st.integers(0, 12),
    length=st.integers(1, 14),
)
def test_can_admit_is_exact(block_size: int, num_blocks: int, cached: int, held: int, length: int) -> None:
    """It is true exactly if adopting the hits and appending the other tokens succeeds."""
    manager = make_manager(num_blocks, block_size)
    if -(-cached // block_size) < num_blocks and cached:
        manager.free(computed(manager, range(cached)))
    if -(-held // block_size) <= manager.pool.num_free and held:
        computed(manager, range(100, 100 + held))
    seq = Sequence(list(range(length)))
    request = make_request(seq)
    found = manager.find_prefix(seq, None)
    admitted = manager.can_admit(request, found)
    manager.adopt_prefix(seq, found)
    assert (manager.append(seq, length - seq.num_computed_tokens) is not None) == admitted


def test_an_empty_salt_is_refused() -> None:
    with pytest.raises(PromptError, match="cache_salt"):
        hits(make_manager(5), range(9), "")


def test_the_null_block_cannot_be_adopted() -> None:
    manager = make_manager(5)
    with pytest.raises(InvariantError):
        manager.adopt_prefix(Sequence([1, 2]), [CachedBlock(0, 1)])
