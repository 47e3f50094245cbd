"""Events of blocks and block tables. The `ref_cnt` of a block is the number of tables that name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlocksTaken:
    """Free blocks were appended to a block table. Each has `ref_cnt` 1 now."""

    seq_id: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlocksTouched:
    """Cached blocks, used or free, were appended to a block table. The `ref_cnt` of each rises by 1."""

    seq_id: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockCopied:
    """Copy-on-write: entry `index` of a block table was `source`, and is now `target`, which was free.

    The `ref_cnt` of `source` drops by 1, and that of `target` is 1. The contents are copied before the step's
    tokens are computed.
    """

    seq_id: int
    index: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class BlocksReleased:
    """A sequence freed all blocks of its table, the last block first. The `ref_cnt` of each drops by 1.

    The sequence has no computed tokens afterwards, unless `BlocksSwappedOut` came just before.

    Attributes:
        block_ids: the table, from its first block to its last. Empty if the sequence had computed tokens but
            no blocks, as in an engine without a cache.
    """

    seq_id: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockStored:
    """A full block is cached, so it can be found by its hash.

    The event may also come during planning, before the planned step fills the block.

    It is entry `index` of the table of `seq_id`, so its tokens are
    `token_ids[index * block_size : (index + 1) * block_size]`.

    Attributes:
        block_hash, parent_block_hash: the first 8 bytes of the hashes, in hexadecimal. `parent_block_hash` is
            `None` for the first block of a sequence.
    """

    block_id: int
    seq_id: int
    index: int
    block_hash: str
    parent_block_hash: str | None


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """A block is no longer cached.

    If the block is free (`ref_cnt` 0), it is *evicted*: `BlocksTaken`, `BlockCopied` or `BlocksSwappedIn`
    then hands it out. If the block is in use, it will be overwritten, or it was stored by a step that failed.
    The third reason is a reset of the prefix cache, in which case `AllBlocksCleared` follows.
    """

    block_id: int
    block_hash: str


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """The prefix cache was reset. A `BlockRemoved` event for each cached block came before."""


@dataclass(frozen=True, slots=True)
class SequenceForked:
    """A sequence begins with memory and computed tokens of another sequence of its request.

    If `child` is new, its tokens are those of `parent`. If it is a sample of a preempted request that
    resumes, it already has its tokens.

    Attributes:
        parent, child: sequence ids.
        index: the number of the child among the request's samples or beams.
        num_tokens: the number of tokens that both sequences have, and that the child counts as computed.
        block_ids: the child's block table. It shares all of these blocks, so their `ref_cnt` rises by 1.
            Empty in a layout without blocks.
    """

    parent: int
    child: int
    index: int
    num_tokens: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlocksSwappedOut:
    """The contents of the first blocks of a table are copied to CPU blocks. `BlocksReleased` follows.

    The sequence keeps its number of computed tokens. Sequences that shared a block share its CPU block.
    """

    seq_id: int
    cpu_block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlocksSwappedIn:
    """A sequence without blocks got the block table `block_ids`. The contents come from CPU blocks.

    The sequence has no CPU blocks afterwards. If an earlier sequence of the same request got a block from the
    same CPU block, both share it, and its `ref_cnt` rises by 1. All other blocks were free.
    """

    seq_id: int
    block_ids: tuple[int, ...]
    cpu_block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CpuBlocksFreed:
    """A sequence that will not be swapped in freed its CPU blocks. It has no computed tokens now."""

    seq_id: int
