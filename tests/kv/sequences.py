"""Functions that make managers and sequences, and that compute tokens without a model."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from minipaged.kv.block_manager import BlockManager
from minipaged.kv.cache import BlockCopy
from minipaged.kv.prefix_hash import HashFunction, PrefixHasher
from minipaged.request import Request, Sequence
from minipaged.sampling.params import SamplingParams

_arrivals = itertools.count()


def make_manager(
    num_blocks: int, block_size: int = 4, *, caching: bool = True, hash_fn: HashFunction | None = None
) -> BlockManager:
    """`num_blocks` counts the null block."""
    return BlockManager(num_blocks, block_size, PrefixHasher(hash_fn=hash_fn) if caching else None)


def make_request(*sequences: Sequence, cache_salt: str | None = None) -> Request:
    """A request with these sequences, which share the first one's prompt."""
    arrival = next(_arrivals)
    first = sequences[0]
    return Request(
        request_id=str(arrival),
        prompt_token_ids=first.token_ids[: first.num_prompt_tokens],
        params=SamplingParams(n=len(sequences)),
        max_tokens=99,
        sampling_seed=0,
        arrival=arrival,
        cache_salt=cache_salt,
        sequences=list(sequences),
    )


def compute(
    manager: BlockManager, seq: Sequence, num_tokens: int | None = None, salt: str | None = None
) -> list[BlockCopy]:
    """Compute the next tokens of a sequence (by default all), and cache its full blocks.

    There must be enough blocks. Returns the block copies that were needed.
    """
    if num_tokens is None:
        num_tokens = seq.num_tokens - seq.num_computed_tokens
    copies = manager.append(seq, num_tokens)
    assert copies is not None
    seq.num_computed_tokens += num_tokens
    manager.cache_full_blocks(seq, seq.num_computed_tokens, salt)
    return copies


def computed(manager: BlockManager, token_ids: Iterable[int], salt: str | None = None) -> Sequence:
    """A sequence of these tokens. All are computed, without prefix hits."""
    seq = Sequence(list(token_ids))
    compute(manager, seq, salt=salt)
    return seq


def forked(manager: BlockManager, parent: Sequence, num_tokens: int | None = None) -> Sequence:
    """A sample that shares the parent's first `num_tokens` tokens, or all its computed tokens."""
    if num_tokens is None:
        num_tokens = parent.num_computed_tokens
    child = Sequence(parent.token_ids[:num_tokens], parent.index + 1)
    manager.fork(parent, child, num_tokens)
    return child


def hits(manager: BlockManager, token_ids: Iterable[int], salt: str | None = None) -> list[int]:
    """The blocks that a new sequence of these tokens would find."""
    return [hit.block_id for hit in manager.find_prefix(Sequence(list(token_ids)), salt)]


def state(manager: BlockManager, *sequences: Sequence) -> list[object]:
    """All bookkeeping as one value that can be compared."""
    pool = manager.pool
    return [
        list(pool.free_queue),
        list(pool.ref_cnt),
        manager.prefix_cache.block_ids(),
        [pool.is_cached(b) for b in range(pool.num_blocks)],
        [(list(seq.block_table), list(seq.prefix_ids), seq.num_computed_tokens) for seq in sequences],
    ]
