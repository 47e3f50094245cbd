"""most_blocks: the most blocks that a request can hold, compared with running the worst case."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.kv.block_manager import BlockManager
from minipaged.request import Sequence
from tests.kv.sequences import compute, forked, make_manager


def peak_blocks(manager: BlockManager, num_prompt_tokens: int, max_tokens: int, n: int) -> int:
    """Serve `n` samples that differ from their first token on, and all run to the end."""
    samples = [Sequence(list(range(num_prompt_tokens)))]
    compute(manager, samples[0])
    samples += [forked(manager, samples[0]) for _ in range(n - 1)]
    peak = manager.pool.num_blocks - 1 - manager.pool.num_free
    for step in range(max_tokens - 1):  # the last token is sampled, never computed
        for i, seq in enumerate(samples):
            seq.token_ids.append(1000 * i + step)
            compute(manager, seq)
            peak = max(peak, manager.pool.num_blocks - 1 - manager.pool.num_free)
    return peak


@settings(max_examples=80, deadline=None)
@given(
    block_size=st.integers(1, 6),
    num_prompt_tokens=st.integers(1, 20),
    max_tokens=st.integers(1, 12),
    n=st.integers(1, 5),
)
def test_the_bound_is_reached_and_never_exceeded(
    block_size: int, num_prompt_tokens: int, max_tokens: int, n: int
) -> None:
    roomy = make_manager(500, block_size)
    most = roomy.most_blocks(num_prompt_tokens, max_tokens, n)
    assert peak_blocks(roomy, num_prompt_tokens, max_tokens, n) == most
    # A pool with exactly this many usable blocks is enough. The null block is one more.
    tight = make_manager(most + 1, block_size)
    assert peak_blocks(tight, num_prompt_tokens, max_tokens, n) == most


def test_an_example() -> None:
    """Blocks of 16, a prompt of 300 tokens, 100 computed tokens for each sample.

    The last output token is never computed, so `max_tokens` is 101. The samples share 18 blocks, and each
    has 7 of its own.
    """
    manager = make_manager(2, block_size=16)
    assert [manager.most_blocks(300, 101, n) for n in (1, 2, 4, 6)] == [25, 32, 46, 60]
