"""Request and Sequence: the work that the scheduler plans.

A `Request` is what a user asked for. It owns one or more `Sequence`s: one for each of its `n` samples, or for
each beam. A sequence is a list of tokens with its own block table. The sequences of a request share the
blocks of their prompt. They are admitted together and preempted together (the paper calls them a sequence
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
    """The state of a request."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    """Waiting again, after it lost its blocks."""
    SWAPPED = "swapped"
    """Waiting again, while its blocks are in CPU memory."""
    FINISHED = "finished"


class Sequence:
    """One sample of a request: its tokens, and how far the model has computed them.

    There are no phases for prefill and decode. A sequence has `num_tokens` and `num_computed_tokens`, and a
    step computes some or all of the difference. When all tokens are computed, the next one is sampled.

    Attributes:
        index: the number of the sample within its request, from 0.
        token_ids: the tokens of the prompt and the output.
        num_prompt_tokens: how many of these tokens are the prompt.
        num_computed_tokens: how many of these tokens have their keys and values in the cache. In an engine
            without a cache, how many of these tokens a step has computed at least once.
        block_table: its physical blocks, in a paged cache.
        region: its slots, in a contiguous cache.
        cpu_block_table: its CPU blocks, while it is swapped out.
        block_hashes: the hashes of the leading full blocks of `token_ids`, up to the last one that was
            needed so far.
        prefix_ids: for each leading block that is in the prefix cache, the id of the prefix that
            ends with it (see `kv/prefix_cache.py`).
        finish_reason: why it ended; `None` while it runs.
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
        """Whether it holds blocks or a region of the KV cache."""
        return len(self.block_table) > 0 or self.region is not None

    @property
    def awaits_siblings(self) -> bool:
        """Whether all of its tokens are computed, but its next token is not chosen yet.

        This happens only to a beam whose candidates are known while other beams are not computed yet.
        """
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
        request_id: the name that the caller gave the request, unique among unfinished requests.
        prompt_token_ids: the prompt.
        params: how to sample.
        max_tokens: the most output tokens of each sequence: `params.max_tokens`, or less if
            `max_model_len` requires it.
        sampling_seed: the seed of `params`, or a seed that the engine drew.
        arrival: how many requests arrived before it. It breaks ties in every order of requests.
        arrival_clock: how many tokens the engine had scheduled when the request arrived. Used only by the
            policy `shortest`.
        priority: a smaller number is more urgent. Used only by the policy `priority`.
        cache_salt: only requests with the same salt share cached blocks.
        prompt: the prompt's text, if it was given as text.
        status: its state.
        num_preemptions: how often it lost its blocks.
        num_cached_tokens: prompt tokens found in the prefix cache when it was first admitted.
        sequences: a single sequence until the prompt is computed, then `params.n` sequences. For a beam
            search, the beams, best first, and after its end the hypotheses.
        search: the beam search that chooses its tokens, or `None`. With a search, `params` has no effect.
        block_usage: counts of the blocks that it has held so far.
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
        for seq in self.sequences:  # noqa: SIM110 (asked after each token, and `all` takes twice as long)
            if seq.finish_reason is None:
                return False
        return True

    @property
    def reads_prefix_cache(self) -> bool:
        """Whether it can use cached blocks.

        A request for `prompt_logprobs` cannot: it needs logits at all positions of the prompt, and cached
        positions have none.
        """
        return self.params.prompt_logprobs is None

    @property
    def has_forked(self) -> bool:
        """Whether all samples exist. Until the prompt is computed, there is a single sequence."""
        return len(self.sequences) == self.params.n

    @property
    def num_seqs(self) -> int:
        """How many of the batch's sequences the request counts as.

        All samples count, even before they fork. A beam search counts as its full beam width.
        """
        if self.search is not None:
            return self.search.params.beam_width
        return len(self.unfinished) if self.has_forked else self.params.n

    def closest_sibling(self, seq: Sequence) -> Sequence | None:
        """Among the sequences that hold memory, the one that shares the most leading tokens with `seq`."""
        holding = (sibling for sibling in self.sequences if sibling.holds_memory)
        return max(holding, key=lambda sibling: common_prefix(sibling, seq), default=None)


def common_prefix(a: Sequence, b: Sequence) -> int:
    """How many leading tokens two sequences have in common."""
    shortest = min(a.num_tokens, b.num_tokens)
    if a.token_ids[:shortest] == b.token_ids[:shortest]:
        return shortest
    return next(i for i in range(shortest) if a.token_ids[i] != b.token_ids[i])
