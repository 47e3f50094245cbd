"""The classes of an engine's bookkeeping: the plain ones, and those that tell an observer what they do."""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.baseline.contiguous_manager import ContiguousManager
from minipaged.baseline.observed import ObservedContiguousManager, ObservedUncachedManager
from minipaged.baseline.uncached_manager import UncachedManager
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.observed import ObservedBlockManager, ObservedSwapSpace
from minipaged.kv.swap import SwapSpace
from minipaged.scheduler.observed import ObservedScheduler
from minipaged.scheduler.scheduler import Scheduler


@dataclass(frozen=True)
class BookkeepingKinds:
    """One class for each layout's manager, for the swap space, and for the scheduler."""

    paged: type[BlockManager]
    contiguous: type[ContiguousManager]
    uncached: type[UncachedManager]
    swap_space: type[SwapSpace]
    scheduler: type[Scheduler]


PLAIN = BookkeepingKinds(BlockManager, ContiguousManager, UncachedManager, SwapSpace, Scheduler)
OBSERVED = BookkeepingKinds(
    ObservedBlockManager,
    ObservedContiguousManager,
    ObservedUncachedManager,
    ObservedSwapSpace,
    ObservedScheduler,
)
