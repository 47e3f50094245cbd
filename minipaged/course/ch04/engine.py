"""The exercises of chapter 4, made from the engine's own code."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import torch
from torch import Tensor

from minipaged.course.ch04.extension import Extension
from minipaged.engine.beam_processor import BeamProcessor
from minipaged.errors import OutOfBlocksError
from minipaged.kv import cache as kv_cache
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.block_pool import BlockPool
from minipaged.kv.block_table import BlockTable, slot_mapping
from minipaged.kv.block_usage import BlockUsage
from minipaged.kv.copy_on_write import BlockCopy, append, fork, free
from minipaged.loading.loader import LoadedModel
from minipaged.request import Request
from minipaged.request import Sequence as TokenSequence
from minipaged.sampling.beam_params import BeamSearchParams
from minipaged.sampling.beam_search import Beam, BeamSearch, Survivor
from minipaged.sampling.params import SamplingParams

__all__ = ["append", "fork", "free"]


def copy_blocks(cache: Tensor, copies: Sequence[BlockCopy]) -> None:
    if copies:
        kv_cache.copy_blocks(cache, copies)


def start_samples(table: list[int], num_samples: int, ref_cnt: list[int]) -> list[list[int]]:
    pool = BlockPool(len(ref_cnt))
    pool.ref_cnt = ref_cnt
    manager = _manager_of(pool)
    samples = [_computed(table)]
    for index in range(1, num_samples):
        child = TokenSequence([0], index)
        manager.fork(samples[0], child, len(table))
        samples.append(child)
    return [list(seq.block_table) for seq in samples]


def decode_step(
    cache: Tensor, tables: Sequence[list[int]], position: int, new_kv: Tensor, pool: BlockPool
) -> list[BlockCopy]:
    block_size = cache.shape[3]
    manager = _manager_of(pool, block_size)
    copies: list[BlockCopy] = []
    slots: list[int] = []
    for table in tables:
        seq = _computed(table, position)
        found = manager.append(seq, 1)
        if found is None:
            raise OutOfBlocksError(f"no room for a token at position {position}")
        copies += found
        table[:] = seq.block_table
        slots += slot_mapping(seq.block_table.ids, position, position + 1, block_size).tolist()
    copy_blocks(cache, copies)
    for layer, kv in zip(cache, new_kv.unbind(1), strict=True):
        kv_cache.write_kv(layer, kv[:, 0], kv[:, 1], torch.tensor(slots))
    return copies


def sharing_saving(tables: Sequence[Sequence[int]]) -> float:
    usage = BlockUsage()
    usage.add_step([_computed(table).block_table for table in tables])
    return usage.sharing_saving


def best_extensions(
    cum_logprobs: Sequence[float], candidates: Sequence[Sequence[tuple[int, float]]], beam_width: int
) -> list[Extension]:
    search = _search(beam_width)
    search.beams = [Beam((), logprob) for logprob in cum_logprobs]
    survivors = search.advance(candidates)
    return [
        Extension(survivor.parent, survivor.token_id, beam.cum_logprob)
        for survivor, beam in zip(survivors, search.beams, strict=True)
    ]


def follow(tables: Sequence[list[int]], parents: Sequence[int], pool: BlockPool) -> list[list[int]]:
    beams = [_computed(table, index=index) for index, table in enumerate(tables)]
    request = Request("follow", [0], SamplingParams(), 1, 0, 0, sequences=beams)
    search = _search(max(len(tables), len(parents)))
    model = cast(LoadedModel, SimpleNamespace(tokenizer=None))
    processor = BeamProcessor(request, search, _manager_of(pool), model, arrival_time=0.0)
    processor._follow([Survivor(parent, token_id=0) for parent in parents])
    return [list(seq.block_table) for seq in request.sequences]


def _manager_of(pool: BlockPool, block_size: int = 1) -> BlockManager:
    manager = BlockManager(pool.num_blocks, block_size, hasher=None)
    manager.pool = pool
    return manager


def _computed(table: Sequence[int], num_tokens: int | None = None, index: int = 0) -> TokenSequence:
    """A sequence with this table. Its blocks are full, unless `num_tokens` is given."""
    seq = TokenSequence([0], index)
    seq.block_table = BlockTable()
    seq.block_table.extend(table)
    seq.num_computed_tokens = len(table) if num_tokens is None else num_tokens
    return seq


def _search(beam_width: int) -> BeamSearch:
    return BeamSearch(BeamSearchParams(beam_width, max_tokens=1000), max_tokens=1000, eos_token_ids=())
