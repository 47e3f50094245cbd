"""Events of the engine and of its steps: planned, executed, sampled, finished, failed."""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.choices import FinishReason


@dataclass(frozen=True, slots=True)
class EngineStarted:
    """The settings that a reader of the other events needs. Their names are those of `EngineConfig`.

    Attributes:
        stage: the stage of the course that has these settings; `None` if no stage has them.
        num_blocks: blocks in the pool, the null block (block 0) included. A contiguous cache has
            `num_blocks * block_size` slots. 0 in an engine without a cache.
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
        step: the step's number, counted from 1. The step after a failed step has the same number again.
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
    """The tokens of the planned step have been computed."""

    time: float


@dataclass(frozen=True, slots=True)
class TokenSampled:
    """A token was appended to a sequence.

    Attributes:
        text: the text that the token adds to the output. Empty while a character is incomplete, or while the
            text may be the beginning of a stop string.
    """

    seq_id: int
    token_id: int
    text: str


@dataclass(frozen=True, slots=True)
class BeamsChosen:
    """A beam search added one token to each beam: `token_ids[i]` was appended to `seq_ids[i]`, best beam
    first.

    The other sequences of the request were dropped, and hold no memory.
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
    """The results of a step are recorded, and the step has ended.

    The counts are the engine's own. A reader can compare them with the state that it rebuilt from the events.
    `num_free` is the number of free blocks. In a contiguous cache, it is the number of free slots divided by
    the block size.
    """

    step: int
    time: float
    num_running: int
    num_waiting: int
    num_swapped: int
    num_free: int


@dataclass(frozen=True, slots=True)
class StepFailed:
    """A step failed and was undone. Requests that it may have half changed lost their memory, and wait.

    An interrupt may have come between a change and its event. So there are no events for the undoing.
    Instead, this event lists all that is held afterwards.

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
    """The engine could not trust its bookkeeping after an error. It dropped all requests and freed all
    memory."""

    time: float
    error: str
