"""PrefixCache: full blocks that can be found again by their contents.

A block's hash covers its tokens and, through its parent's hash, all tokens before it. But the hashes of
two different prefixes may collide. So each entry also stores the tokens themselves, and a hit is verified
along the whole chain before it counts. Verifying takes O(1) per block: each distinct prefix has a
`prefix_id`, and an entry stores the `prefix_id` of its parent.

See vLLM, `v1/core/block_pool.py` (`BlockHashToBlockMap`), which trusts its hashes instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.errors import InvariantError
from minipaged.kv.prefix_hash import ExtraKeys

ROOT_PREFIX_ID = 0
"""The prefix before the first block: no tokens at all."""


@dataclass(frozen=True)
class PrefixBlock:
    """The contents of one full block.

    Attributes:
        block_hash: the hash by which the block is looked up.
        parent_id: the `prefix_id` of all tokens before this block.
        token_ids: this block's tokens, exactly `block_size`.
        extra_keys: what must be equal in addition to the tokens (a salt, an adapter), or `None`.
    """

    block_hash: bytes
    parent_id: int
    token_ids: tuple[int, ...]
    extra_keys: ExtraKeys | None


@dataclass(frozen=True)
class CachedBlock:
    """A verified hit: the physical block, and the id of the prefix that ends with this block."""

    block_id: int
    prefix_id: int


class PrefixCache:
    """Maps the contents of full blocks to physical blocks.

    Two blocks may hold the same prefix, if two sequences computed it at the same time. Both blocks are
    kept: block tables only grow, so neither sequence can replace its block by the other's.
    """

    def __init__(self) -> None:
        self._by_hash: dict[bytes, dict[int, CachedBlock]] = {}
        self._contents: dict[int, PrefixBlock] = {}
        self._next_prefix_id = ROOT_PREFIX_ID + 1

    def find(self, wanted: PrefixBlock) -> CachedBlock | None:
        """The first block that holds exactly `wanted`, or `None`."""
        for block_id, cached in self._by_hash.get(wanted.block_hash, {}).items():
            if self._contents[block_id] == wanted:
                return cached
        return None

    def insert(self, block_id: int, contents: PrefixBlock) -> CachedBlock:
        """Make a full block findable. Blocks that hold the same prefix get the same prefix id."""
        twin = self.find(contents)
        if twin is not None:
            prefix_id = twin.prefix_id
        else:
            prefix_id = self._next_prefix_id
            self._next_prefix_id += 1
        cached = CachedBlock(block_id, prefix_id)
        self._by_hash.setdefault(contents.block_hash, {})[block_id] = cached
        self._contents[block_id] = contents
        return cached

    def get(self, block_id: int) -> CachedBlock | None:
        """The entry of a physical block, or `None` if it is not cached."""
        contents = self._contents.get(block_id)
        return None if contents is None else self._by_hash[contents.block_hash][block_id]

    def contents(self, block_id: int) -> PrefixBlock:
        """The contents of a cached block.

        Raises:
            KeyError: the block is not cached.
        """
        return self._contents[block_id]

    def evict(self, block_id: int) -> None:
        """Forget a block that is about to be overwritten."""
        contents = self._contents.pop(block_id)
        twins = self._by_hash[contents.block_hash]
        del twins[block_id]
        if not twins:
            del self._by_hash[contents.block_hash]

    def block_ids(self) -> frozenset[int]:
        """All cached blocks."""
        return frozenset(self._contents)

    def check_invariants(self) -> None:
        """Compare the hashes with the contents.

        Raises:
            InvariantError: a block has an entry by hash but no contents, or contents but no entry.
        """
        hashed = {block_id: key for key, twins in self._by_hash.items() for block_id in twins}
        known = {block_id: contents.block_hash for block_id, contents in self._contents.items()}
        if hashed != known:
            raise InvariantError("the prefix cache's entries by hash do not match its stored contents")

    def __len__(self) -> int:
        return len(self._contents)
