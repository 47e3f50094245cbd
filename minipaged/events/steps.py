"""Events of the engine and of its steps: planned, executed, sampled, finished, failed."""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.choices import FinishReason


@dataclass(frozen=True, slots=True)
class EngineStarted:
    """The settings that a reader of the other events needs; names as in `EngineConfig`.

    Attributes:
        stage: the stage of the course whose settings these are; `None` if it is none of them.
        num_blocks: blocks in the pool, the null block (block 0) included. A contiguous cache has
            `num_blocks * block_size` slots. 0 without a cache.
        num_cpu_blocks: blocks of CPU memory for swapping.
    """

    model: str
    stage: int | None
    kv_layout: str
    block_size: int
    num_blocks: int
    num_cpu_blocks: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    enable_chunked_prefill: bool
    enable_prefix_caching: bool
    scheduling_policy: str
    preemption_mode: str
    batching: str
    fork_mode: str
    reserve: str
    region_allocator: str


@dataclass(frozen=True, slots=True)
class StepPlanned:
    """The plan of a step: sequence `seq_ids[i]` computes `num_tokens[i]` tokens from position `starts[i]` on.

    Attributes:
        step: its number, from 1. A step that fails gives its number to the next one.
        began: when planning began. `time` is when it ended.
    """

    step: int
    began: float
    time: float
    seq_ids: tuple[int, ...]
    starts: tuple[int, ...]
    num_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepExecuted:
    """The planned tokens are computed."""

    time: float


@dataclass(frozen=True, slots=True)
class TokenSampled:
    """A token was appended to a sequence.

    Attributes:
        text: what it adds to the output's text. Empty while a character is incomplete or may begin a stop
            string.
    """

    seq_id: int
    token_id: int
    text: str


@dataclass(frozen=True, slots=True)
class BeamsChosen:
    """A beam search went on by one token: `token_ids[i]` was appended to `seq_ids[i]`, best beam first.

    The other sequences of the request are dropped; they hold no memory.
    """

    request_id: str
    seq_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SequenceFinished:
    """A sequence has ended. `stop_reason` is the stop string or token, or the error, as text."""

    seq_id: int
    finish_reason: FinishReason
    stop_reason: str | None


@dataclass(frozen=True, slots=True)
class StepFinished:
    """The results of a step are taken in.

    The counts are the engine's own, for comparison with the state that the events lead to. `num_free` is the
    number of free blocks; in a contiguous cache, of the free slots divided by the block size.
    """

    step: int
    time: float
    num_running: int
    num_waiting: int
    num_swapped: int
    num_free: int


@dataclass(frozen=True, slots=True)
class StepFailed:
    """A step was undone. Requests that may have been half changed have lost their memory, and wait.

    An interrupt may have come between a change and its event. So no event tells how the step was undone, and
    this one states all that is held afterwards.

    Attributes:
        waiting: the requests that lost their memory.
        seq_ids, num_computed_tokens, block_tables: the sequences that still hold blocks.
        cached: the cached blocks.
    """

    time: float
    error: str
    waiting: tuple[str, ...]
    seq_ids: tuple[int, ...]
    num_computed_tokens: tuple[int, ...]
    block_tables: tuple[tuple[int, ...], ...]
    cached: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EngineReset:
    """The bookkeeping could not be trusted after an error: all requests were dropped, and all memory is
    free."""

    time: float
    error: str
