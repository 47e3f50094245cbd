"""The events that an engine passes to its observer, in the order in which they happen.

An observer is a function that takes an event: `LLMEngine(config, observer=print)`. Events that vLLM has too
keep the names that they have there (`BlockStored`, `BlockRemoved`, `AllBlocksCleared`). `minipaged/trace/`
writes the events to a file and rebuilds the engine's state from them.

A *sequence id* is a number that no other sequence of the engine has. `RequestAdded` and `SequenceForked`
introduce them. Times are seconds since the first event that has one.
"""

from __future__ import annotations

from collections.abc import Callable

from minipaged.events.blocks import (
    AllBlocksCleared,
    BlockCopied,
    BlockRemoved,
    BlocksReleased,
    BlocksSwappedIn,
    BlocksSwappedOut,
    BlocksTaken,
    BlockStored,
    BlocksTouched,
    CpuBlocksFreed,
    SequenceForked,
)
from minipaged.events.regions import (
    RegionFreed,
    RegionHeld,
    RegionReserved,
    RegionReturned,
)
from minipaged.events.requests import (
    PrefixHit,
    RequestAborted,
    RequestAdded,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
)
from minipaged.events.steps import (
    BeamsChosen,
    EngineReset,
    EngineStarted,
    SequenceFinished,
    StepExecuted,
    StepFailed,
    StepFinished,
    StepPlanned,
    TokenSampled,
)

Event = (
    EngineStarted
    | RequestAdded
    | PrefixHit
    | RequestAdmitted
    | RequestPreempted
    | RequestResumed
    | RequestFinished
    | RequestAborted
    | BlocksTaken
    | BlocksTouched
    | BlockCopied
    | BlocksReleased
    | BlockStored
    | BlockRemoved
    | AllBlocksCleared
    | SequenceForked
    | BlocksSwappedOut
    | BlocksSwappedIn
    | CpuBlocksFreed
    | RegionReserved
    | RegionHeld
    | RegionReturned
    | RegionFreed
    | StepPlanned
    | StepExecuted
    | TokenSampled
    | BeamsChosen
    | SequenceFinished
    | StepFinished
    | StepFailed
    | EngineReset
)

Observer = Callable[[Event], None]
"""A function that is called with each event of an engine. If it raises an error, the engine logs a warning
and never calls it again."""

__all__ = [
    "AllBlocksCleared",
    "BeamsChosen",
    "BlockCopied",
    "BlockRemoved",
    "BlockStored",
    "BlocksReleased",
    "BlocksSwappedIn",
    "BlocksSwappedOut",
    "BlocksTaken",
    "BlocksTouched",
    "CpuBlocksFreed",
    "EngineReset",
    "EngineStarted",
    "Event",
    "Observer",
    "PrefixHit",
    "RegionFreed",
    "RegionHeld",
    "RegionReserved",
    "RegionReturned",
    "RequestAborted",
    "RequestAdded",
    "RequestAdmitted",
    "RequestFinished",
    "RequestPreempted",
    "RequestResumed",
    "SequenceFinished",
    "SequenceForked",
    "StepExecuted",
    "StepFailed",
    "StepFinished",
    "StepPlanned",
    "TokenSampled",
]
