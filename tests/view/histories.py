"""Engines to draw: engines under random requests, and a pool snapshot made by hand."""

from __future__ import annotations

import random

from minipaged.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine
from minipaged.loading.loader import LoadedModel
from minipaged.request import RequestStatus
from minipaged.sampling.params import SamplingParams
from minipaged.view.pool_snapshot import (
    BlockSnapshot,
    PoolSnapshot,
    RequestSnapshot,
    SequenceKey,
    SequenceSnapshot,
)


class RandomHistory:
    """An engine under random requests: some share a prefix, some have two samples, some are aborted."""

    def __init__(self, model: LoadedModel, seed: int) -> None:
        self._draw = random.Random(seed)
        block_size = self._draw.choice([1, 2, 4, 8])
        num_blocks = 1 + -(-40 // block_size) + self._draw.randrange(8)
        config = EngineConfig(
            block_size=block_size,
            num_blocks=num_blocks,
            max_model_len=20,
            max_num_seqs=self._draw.choice([2, 4, 8]),
            max_num_batched_tokens=self._draw.choice([3, 8, 64]),
            enable_prefix_caching=self._draw.random() < 0.8,
            dtype="float32",
            device="cpu",
        )
        self.engine = LLMEngine(config, model)
        self.ids: list[str] = []

    def advance(self) -> None:
        """Do one random action: add a request, abort a request, or run a step."""
        what = self._draw.random()
        if what < 0.35:
            length = self._draw.randint(1, 12)
            prompt = [7] * self._draw.randrange(length) + [self._draw.randrange(250)]
            self.ids.append(f"r{len(self.ids)}")
            params = SamplingParams(
                n=self._draw.choice([1, 1, 2]), max_tokens=self._draw.randint(1, 8), seed=1, ignore_eos=True
            )
            self.engine.add_request(self.ids[-1], prompt, params)
        elif what < 0.42 and self.ids:
            self.engine.abort_request(self._draw.choice(self.ids))
        else:
            self.engine.step()


def snapshot(*, num_blocks: int = 24, num_sequences: int = 5) -> PoolSnapshot:
    """A pool whose first two used blocks are shared by all sequences.

    Each sequence also has one block of its own, which is half full. The last three blocks are cached.
    """
    keys = [SequenceKey(f"r{i}") for i in range(num_sequences)]
    sequences = [SequenceSnapshot(key, 10, 11, 10, 20, block_ids=(1, 2, 3 + i)) for i, key in enumerate(keys)]
    blocks = [BlockSnapshot(0, "null")]
    blocks += [BlockSnapshot(i, "used", tuple(keys), 4) for i in (1, 2)]
    blocks += [BlockSnapshot(3 + i, "used", (key,), 2) for i, key in enumerate(keys)]
    while len(blocks) < num_blocks - 3:
        blocks.append(BlockSnapshot(len(blocks), "free"))
    while len(blocks) < num_blocks:
        blocks.append(BlockSnapshot(len(blocks), "cached", num_filled=4))
    waiting = [
        RequestSnapshot(
            f"w{i}", status, i, (SequenceSnapshot(SequenceKey(f"w{i}"), 10, 10, 0, 20, block_ids=()),)
        )
        for i, status in enumerate((RequestStatus.PREEMPTED, RequestStatus.WAITING))
    ]
    return PoolSnapshot(
        block_size=4,
        blocks=tuple(blocks),
        running=tuple(
            RequestSnapshot(seq.key.request_id, RequestStatus.RUNNING, 0, (seq,)) for seq in sequences
        ),
        waiting=tuple(waiting),
        num_steps=7,
        num_preemptions=1,
        generation_tokens=5,
        prefix_cache_hits=32,
    )
