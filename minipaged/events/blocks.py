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
    """Cached blocks, used or free, were appended to a block table: `ref_cnt` rises by 1."""

    seq_id: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockCopied:
    """Copy-on-write: entry `index` of a block table was `source`, and is the free block `target` now.

    The `ref_cnt` of `source` drops by 1, and that of `target` is 1. The contents are copied before the step's
    tokens are computed.
    """

    seq_id: int
    index: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class BlocksReleased:
    """A sequence gave up its whole block table, from the last block to the first: `ref_cnt` drops by 1.

    It has no computed tokens afterwards, unless `BlocksSwappedOut` came just before.

    Attributes:
        block_ids: the table, from its first block to its last. Empty if the sequence had only computed
            tokens, as in an engine without a cache.
    """

    seq_id: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockStored:
    """A full block is cached: it can be found by its hash. (A step that will fill it counts as well.)

    It is entry `index` of the table of `seq_id`, so its tokens are
    `token_ids[index * block_size : (index + 1) * block_size]`.

    Attributes:
        block_hash, parent_block_hash: the first 8 bytes of the hashes, in hexadecimal; the parent of a first
            block is `None`.
    """

    block_id: int
    seq_id: int
    index: int
    block_hash: str
    parent_block_hash: str | None


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """A block is cached no longer.

    A free block (`ref_cnt` 0) is *evicted*: `BlocksTaken`, `BlockCopied` or `BlocksSwappedIn` hands it out
    next. A used block will be overwritten, or was stored by a step that failed. `AllBlocksCleared` may follow
    instead.
    """

    block_id: int
    block_hash: str


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """The prefix cache was reset. `BlockRemoved` came before for each cached block."""


@dataclass(frozen=True, slots=True)
class SequenceForked:
    """A sequence begins with memory and computed tokens of another sequence of its request.

    `child` may be new: then its tokens are those of `parent`. Or it is a sample of a preempted request that
    comes
    back: then it has its tokens already.

    Attributes:
        parent, child: sequence ids.
        index: the number of the child among the request's samples or beams.
        num_tokens: the tokens that both have, and that the child counts as computed.
        block_ids: the child's block table, all blocks of which it shares (`ref_cnt` rises by 1). Empty
            without blocks.
    """

    parent: int
    child: int
    index: int
    num_tokens: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlocksSwappedOut:
    """The contents of the first blocks of a table go to CPU blocks. `BlocksReleased` follows.

    The sequence keeps its number of computed tokens. Sequences that shared a block share its CPU block.
    """

    seq_id: int
    cpu_block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlocksSwappedIn:
    """The empty block table of a sequence is `block_ids` now, and their contents come from CPU blocks.

    The sequence has no CPU blocks afterwards. A block that an earlier sequence of the same request got from
    the same CPU block is shared (`ref_cnt` rises by 1); the others were free.
    """

    seq_id: int
    block_ids: tuple[int, ...]
    cpu_block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CpuBlocksFreed:
    """A sequence that will not be swapped in gives up its CPU blocks, and has no computed tokens."""

    seq_id: int
