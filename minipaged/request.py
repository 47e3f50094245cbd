"""Request and Sequence: what the scheduler knows of the work it was given.

A `Request` is what a user asked for. It owns one `Sequence` for each sample (`n`), or for each beam
that is being followed: one line of tokens with its own block table. The sequences of a request share
their prompt's blocks, are admitted together and preempted together (the paper calls them a sequence
group, section 4.5).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from minipaged.baseline.region_allocator import Region
from minipaged.choices import FinishReason
from minipaged.kv.block_table import BlockTable
from minipaged.kv.block_usage import BlockUsage
from minipaged.sampling.beam_search import BeamSearch
from minipaged.sampling.params import SamplingParams


class RequestStatus(enum.Enum):
    """Where a request is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    """Waiting again, after its blocks were taken away."""
    SWAPPED = "swapped"
    """Its blocks are in CPU memory."""
    FINISHED = "finished"


class Sequence:
    """One sample of a request: its tokens, and how far the model has computed them.

    There is no prefill and no decode phase. A sequence has `num_tokens` and
    `num_computed_tokens`; a step computes some of the difference, and where it reaches the end,
    the next token is sampled.

    Attributes:
        index: the sample's number within its request, from 0.
        token_ids: prompt and output.
        num_prompt_tokens: how many of them are the prompt.
        num_computed_tokens: how many have their keys and values in the cache. Without a cache: how
            many have a successor that is known.
        block_table: the physical blocks.
        region: its slots, in a contiguous cache.
        cpu_block_table: where their contents are while the sequence is swapped out.
        block_hashes: the hash of each full block of `token_ids`, as far as it was needed.
        prefix_ids: for each leading block that is in the prefix cache, the id of the prefix that
            ends with it (see `kv/prefix_cache.py`).
        finish_reason: why it ended, or `None` while it has not.
    """

    def __init__(self, prompt_token_ids: list[int], index: int = 0) -> None:
        self.index = index
        self.token_ids = list(prompt_token_ids)
        self.num_prompt_tokens = len(prompt_token_ids)
        self.num_computed_tokens = 0
        self.block_table = BlockTable()
        self.region: Region | None = None
        self.cpu_block_table: list[int] = []
        self.block_hashes: list[bytes] = []
        self.prefix_ids: list[int] = []
        self.finish_reason: FinishReason | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def holds_memory(self) -> bool:
        """Whether it has any part of the KV cache."""
        return len(self.block_table) > 0 or self.region is not None

    @property
    def awaits_siblings(self) -> bool:
        """Whether all of its tokens are computed, and the next is not chosen yet: a beam of which the
        candidates are known, while other beams are still to be computed."""
        return self.num_computed_tokens == self.num_tokens

    def __repr__(self) -> str:
        return (
            f"Sequence(index={self.index}, num_tokens={self.num_tokens}, "
            f"num_computed_tokens={self.num_computed_tokens}, block_table={list(self.block_table)})"
        )


@dataclass(eq=False)
class Request:
    """A user's request on its way through the engine.

    Attributes:
        request_id: the caller's name for it, unique among unfinished requests.
        prompt_token_ids: the prompt.
        params: how to sample.
        max_tokens: most output tokens of each sequence: `params.max_tokens`, or less where
            `max_model_len` leaves less room.
        sampling_seed: the params' seed, or one that the engine drew.
        arrival: the number of its arrival, from 0: the tie-breaker of every order.
        arrival_clock: tokens that the engine had scheduled when it arrived; read under `shortest`.
        priority: smaller is more urgent; read under `scheduling_policy="priority"`.
        cache_salt: only requests with the same salt share cached blocks.
        prompt: the prompt's text, if it was given as text.
        status: where it is in its life.
        num_preemptions: how often it lost its blocks.
        num_cached_tokens: prompt tokens found in the prefix cache at its first admission.
        sequences: one to begin with; `params.n` once the prompt has been computed. Of a beam search,
            the beams, best first, and in the end the hypotheses.
        search: the beam search that chooses its tokens, if it is one; `params` then say nothing.
        block_usage: the blocks that it has held so far.
    """

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    max_tokens: int
    sampling_seed: int
    arrival: int
    arrival_clock: int = 0
    priority: int = 0
    cache_salt: str | None = None
    prompt: str | None = None
    status: RequestStatus = RequestStatus.WAITING
    num_preemptions: int = 0
    num_cached_tokens: int | None = None
    sequences: list[Sequence] = field(default_factory=list)
    search: BeamSearch | None = None
    block_usage: BlockUsage = field(default_factory=BlockUsage)

    def __post_init__(self) -> None:
        if not self.sequences:
            self.sequences = [Sequence(self.prompt_token_ids)]

    @property
    def unfinished(self) -> list[Sequence]:
        return [seq for seq in self.sequences if not seq.is_finished]

    @property
    def is_finished(self) -> bool:
        return all(seq.is_finished for seq in self.sequences)

    @property
    def reads_prefix_cache(self) -> bool:
        """Whether cached blocks are of use to it: cached tokens have no logits, and a request for
        `prompt_logprobs` wants those of all prompt tokens."""
        return self.params.prompt_logprobs is None

    @property
    def has_forked(self) -> bool:
        """Whether the prompt is computed and all samples exist; before that there is one sequence."""
        return len(self.sequences) == self.params.n

    @property
    def num_seqs(self) -> int:
        """How many sequences it counts for in the batch: all its samples, also before they fork, and
        as many beams as there can be."""
        if self.search is not None:
            return self.search.params.beam_width
        return len(self.unfinished) if self.has_forked else self.params.n

    def closest_sibling(self, seq: Sequence) -> Sequence | None:
        """Of the sequences that hold memory, the one with the most leading tokens in common."""
        holding = (sibling for sibling in self.sequences if sibling.holds_memory)
        return max(holding, key=lambda sibling: common_prefix(sibling, seq), default=None)


def common_prefix(a: Sequence, b: Sequence) -> int:
    """How many leading tokens two sequences have in common."""
    shortest = min(a.num_tokens, b.num_tokens)
    if a.token_ids[:shortest] == b.token_ids[:shortest]:
        return shortest
    return next(i for i in range(shortest) if a.token_ids[i] != b.token_ids[i])
