"""MemoryBreakdown: what each slot of the KV memory is used for at one moment.

These are the paper's categories (section 3.1, Fig. 2 and Fig. 3), for a contiguous and for a paged cache.

Whether an empty slot will be used depends on the final length of its sequence. The paper replays outputs
of known lengths. An engine does not know the final length, so it assumes the maximum: `max_tokens` output
tokens. With `ignore_eos` and no stop condition this assumption is exact. If a sequence ends earlier, some of
what was counted as its *reservation* was really *internal fragmentation*.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from minipaged.kv.block_pool import BlockPool
from minipaged.request import Request


@dataclass(frozen=True)
class MemoryBreakdown:
    """The number of slots of a KV cache in each use. Each slot is counted once.

    Attributes:
        token_states: slots that hold the keys and values of a token of an unfinished sequence.
            A slot that several sequences share counts once.
        reservation: empty slots that a sequence holds, and will fill.
        internal_fragmentation: empty slots that a sequence holds, and will never fill.
        external_fragmentation: slots that no sequence can use: gaps too small for the next request, and
            slots that an allocator adds when it rounds a region up. Always 0 in a paged cache, where
            any sequence can use any free block.
        free: slots that can be handed out now. The paper has no such category. It measures under a load
            that leaves nothing free, and counts all other slots as "external fragmentation & others".
    """

    token_states: int
    reservation: int
    internal_fragmentation: int
    external_fragmentation: int
    free: int

    @property
    def num_slots(self) -> int:
        """The number of all slots: the sum of the five counts. 0 in an engine without a cache."""
        return sum(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        total = self.num_slots
        if total == 0:
            return "no KV memory"
        shares = (
            f"{field.name.replace('_', ' ')} {getattr(self, field.name) / total:.1%}"
            for field in fields(self)
        )
        return f"{total:,} slots: {', '.join(shares)}"


def paged_breakdown(pool: BlockPool, block_size: int, running: Iterable[Request]) -> MemoryBreakdown:
    """Count the slots of a paged cache by what they are used for.

    The null block is not counted, as in `BlockPool.usage`. A cached block with reference count 0 counts
    as free: a prefix hit may still find its contents, but it can be handed out at once.

    The only waste is in blocks that are not full. If several sequences share such a block, only the sequence
    that will fill most of it counts. All of them but the last copy the block before they write into it, and
    the last one writes in place.

    Args:
        pool: the block pool.
        block_size: tokens per block.
        running: the requests whose sequences hold blocks. The last token of a sequence is sampled but
            never computed, so a sequence fills at most `prompt + max_tokens - 1` slots.
    """
    filled: dict[int, int] = {}  # block -> slots that hold a token
    useful: dict[int, int] = {}  # block -> slots that hold a token now or will hold one later
    for request in running:
        num_at_end = len(request.prompt_token_ids) + request.max_tokens - 1
        for seq in request.unfinished:
            for i, block_id in enumerate(seq.block_table):
                now = min(block_size, max(0, seq.num_computed_tokens - i * block_size))
                later = min(block_size, max(0, num_at_end - i * block_size))
                filled[block_id] = max(filled.get(block_id, 0), now)
                useful[block_id] = max(useful.get(block_id, 0), now, later)
    token_states, total_useful = sum(filled.values()), sum(useful.values())
    return MemoryBreakdown(
        token_states=token_states,
        reservation=total_useful - token_states,
        internal_fragmentation=len(useful) * block_size - total_useful,
        external_fragmentation=0,
        free=pool.num_free * block_size,
    )
