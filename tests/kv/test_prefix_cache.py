"""PrefixCache: a hit always holds the wanted tokens, even if hashes collide."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from minipaged.kv.prefix_cache import ROOT_PREFIX_ID, CachedBlock, PrefixBlock, PrefixCache
from minipaged.kv.prefix_hash import ExtraKeys

SALT: ExtraKeys = (("cache_salt", "blue"),)


def block(
    *token_ids: int, parent: int = ROOT_PREFIX_ID, keys: ExtraKeys | None = None, block_hash: bytes = b"same"
) -> PrefixBlock:
    """The contents of a block. All hashes collide unless told otherwise."""
    return PrefixBlock(block_hash, parent, token_ids, keys)


def found(hit: CachedBlock | None) -> int | None:
    return None if hit is None else hit.block_id


def test_a_hit_is_verified_under_a_constant_hash() -> None:
    cache = PrefixCache()
    cache.insert(5, block(1, 2))
    assert found(cache.find(block(1, 2))) == 5
    assert cache.find(block(1, 3)) is None, "other tokens"
    assert cache.find(block(1, 2, parent=7)) is None, "another beginning"
    assert cache.find(block(1, 2, keys=SALT)) is None, "another salt"
    assert cache.find(block(1, 2, block_hash=b"other")) is None


def test_colliding_blocks_live_side_by_side() -> None:
    cache = PrefixCache()
    entries = [cache.insert(b, block(b, b)) for b in (1, 2, 3)]
    assert len({entry.prefix_id for entry in entries}) == 3
    assert [found(cache.find(block(b, b))) for b in (1, 2, 3)] == [1, 2, 3]
    cache.evict(2)
    assert [found(cache.find(block(b, b))) for b in (1, 2, 3)] == [1, None, 3]


def test_duplicates_share_a_prefix_id() -> None:
    cache = PrefixCache()
    first, twin = cache.insert(5, block(1, 2)), cache.insert(9, block(1, 2))
    assert first.prefix_id == twin.prefix_id
    assert (first.block_id, twin.block_id) == (5, 9)
    assert cache.get(5) == first
    assert cache.get(9) == twin
    assert cache.block_ids() == {5, 9}


@pytest.mark.parametrize("gone", [5, 9])
def test_one_twin_is_evicted(gone: int) -> None:
    """Two blocks hold one prefix, and one is evicted. Blocks after the prefix are still found."""
    cache = PrefixCache()
    prefix_id = cache.insert(5, block(1, 2)).prefix_id
    cache.insert(9, block(1, 2))
    child = cache.insert(6, block(3, 4, parent=prefix_id))
    cache.evict(gone)
    hit = cache.find(block(1, 2))
    assert hit is not None
    assert hit.block_id == 14 - gone
    assert cache.find(block(3, 4, parent=hit.prefix_id)) == child
    assert cache.insert(gone, block(1, 2)).prefix_id == prefix_id


def test_the_same_tokens_after_different_parents() -> None:
    cache = PrefixCache()
    left, right = cache.insert(1, block(1)), cache.insert(2, block(2))
    cache.insert(3, block(7, parent=left.prefix_id))
    assert cache.find(block(7, parent=right.prefix_id)) is None
    cache.insert(4, block(7, parent=right.prefix_id))
    assert found(cache.find(block(7, parent=left.prefix_id))) == 3
    assert found(cache.find(block(7, parent=right.prefix_id))) == 4


def test_a_stale_child_is_no_hit_after_another_parent() -> None:
    """The parent is evicted and its block is overwritten. Then the child must not be found."""
    cache = PrefixCache()
    old = cache.insert(1, block(1))
    cache.insert(2, block(9, parent=old.prefix_id))
    cache.evict(1)
    new = cache.insert(1, block(5))
    assert new.prefix_id != old.prefix_id
    assert cache.find(block(9, parent=new.prefix_id)) is None
    # The same tokens in a new block are a new prefix, so the old child does not belong to it.
    again = cache.insert(3, block(1))
    assert again.prefix_id not in (old.prefix_id, new.prefix_id)


def test_an_evicted_block_leaves_nothing_behind() -> None:
    cache = PrefixCache()
    cache.insert(1, block(1))
    cache.evict(1)
    assert cache.get(1) is None
    assert cache.find(block(1)) is None
    assert len(cache) == 0
    assert cache.block_ids() == frozenset()
    with pytest.raises(KeyError):
        cache.evict(1)


def test_no_prefix_id_is_the_roots() -> None:
    cache = PrefixCache()
    assert cache.insert(1, block(1)).prefix_id != ROOT_PREFIX_ID


class ChainsAgainstText(RuleBasedStateMachine):
    """Chains of blocks, under hashes that often collide.

    The model records the whole text of each block and the blocks before it. A search from the root must
    find only blocks whose text it searched for.
    """

    NUM_BLOCKS = 8

    def __init__(self) -> None:
        super().__init__()
        self.cache = PrefixCache()
        self.text: dict[int, tuple[str, ...]] = {}
        self.held: list[tuple[tuple[str, ...], int]] = [((), ROOT_PREFIX_ID)]  # last blocks of tables

    def contents(self, text: tuple[str, ...], parent_id: int) -> PrefixBlock:
        tokens = (ord(text[-1]),)
        return PrefixBlock(bytes([tokens[0] % 2]), parent_id, tokens, None)

    def walk(self, text: tuple[str, ...]) -> list[CachedBlock]:
        hits: list[CachedBlock] = []
        for end in range(1, len(text) + 1):
            parent_id = hits[-1].prefix_id if hits else ROOT_PREFIX_ID
            hit = self.cache.find(self.contents(text[:end], parent_id))
            if hit is None:
                break
            hits.append(hit)
        return hits

    @precondition(lambda self: len(self.text) < self.NUM_BLOCKS)
    @rule(data=st.data(), letter=st.sampled_from("abcd"))
    def insert(self, data: st.DataObject, letter: str) -> None:
        text, parent_id = data.draw(st.sampled_from(self.held))
        block_id = next(b for b in range(self.NUM_BLOCKS) if b not in self.text)
        entry = self.cache.insert(block_id, self.contents((*text, letter), parent_id))
        self.text[block_id] = (*text, letter)
        self.held.append(((*text, letter), entry.prefix_id))

    @precondition(lambda self: self.text)
    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        block_id = data.draw(st.sampled_from(sorted(self.text)))
        self.cache.evict(block_id)
        del self.text[block_id]

    @rule(text=st.lists(st.sampled_from("abcd"), min_size=1, max_size=4))
    def look_up(self, text: list[str]) -> None:
        for end, hit in enumerate(self.walk(tuple(text)), start=1):
            assert self.text[hit.block_id] == tuple(text[:end])

    @invariant()
    def agrees(self) -> None:
        assert self.cache.block_ids() == set(self.text)
        assert len(self.cache) == len(self.text)
        by_prefix: dict[int, set[tuple[str, ...]]] = {}
        for block_id, text in self.text.items():
            entry = self.cache.get(block_id)
            assert entry is not None
            assert entry.block_id == block_id
            by_prefix.setdefault(entry.prefix_id, set()).add(text)
        assert all(len(texts) == 1 for texts in by_prefix.values()), "a prefix id stands for one prefix"


ChainsAgainstText.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestChainsAgainstText = ChainsAgainstText.TestCase
