"""MemoryBreakdown: what each slot of the KV memory is good for at one moment.

The paper's division (section 3.1, Fig. 2 and Fig. 3), for a contiguous cache and for a paged one.

Whether an empty slot will be used depends on how long its sequence gets, which is certain only at
its end. The paper replays outputs of known lengths; an engine cannot. So both functions take the
*tokens at the end*, and an engine puts the most that may come there: `max_tokens`. With
`ignore_eos` and no stop condition that is exact. Otherwise a sequence that ends early shows that
some of its *reservation* was *internal fragmentation* all along.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from minipaged.kv.block_pool import BlockPool
from minipaged.request import Request


@dataclass(frozen=True)
class MemoryBreakdown:
    """The slots of a KV cache, each counted once.

    Attributes:
        token_states: slots that hold the keys and values of a token of an unfinished sequence.
            One that several sequences share counts once.
        reservation: empty slots that a sequence holds, and will fill.
        internal_fragmentation: empty slots that a sequence holds, and will never fill.
        external_fragmentation: slots that nobody holds and nobody can have: gaps too small for the
            next request, and what an allocator adds to round a region up. None in a paged cache,
            where any free block serves any sequence.
        free: slots that can be handed out now. The paper has no such column: it measures under a
            load that leaves nothing free, and puts all else into "external fragmentation & others".
    """

    token_states: int
    reservation: int
    internal_fragmentation: int
    external_fragmentation: int
    free: int

    @property
    def num_slots(self) -> int:
        """All slots: the sum of the five. 0 in an engine without a cache."""
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
    """Divide the slots of a paged cache.

    Counted are the blocks that can be handed out, as for `BlockPool.usage`: the null block is left
    out. A cached block that nobody holds is free, since it can be handed out at once, although its
    contents may be found again. All other waste is in blocks that are not full. If several
    sequences share such a block, the one that gets furthest in it decides: all others copy it
    before they write, and the last one writes in place.

    Args:
        pool: the blocks.
        block_size: tokens per block.
        running: the requests whose sequences hold blocks. The last token of a sequence is sampled
            and never computed, so at its end it fills `prompt + max_tokens - 1` slots.
    """
    filled: dict[int, int] = {}  # block -> slots that hold a token
    useful: dict[int, int] = {}  # block -> slots that hold one now or later
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
