"""Incidents in which the prefix cache finds less than it could."""

from __future__ import annotations

import random
from difflib import SequenceMatcher

from minipaged.config import EngineConfig
from minipaged.course.incidents.incident import Finding
from minipaged.course.incidents.workload import Arrival, exactly, play, story
from minipaged.engine.intake import TextPrompt
from minipaged.engine.llm_engine import LLMEngine
from minipaged.events import BlockRemoved, BlockStored, Observer, RequestAdded
from minipaged.kv import copy_on_write
from minipaged.kv.copy_on_write import Table
from minipaged.parts import Parts
from minipaged.trace.trace import Trace


def timestamp(observer: Observer) -> None:
    """All prompts have the same instructions, but each prompt begins with the time of day."""
    draw = random.Random(71)
    instructions = story(draw, 8)
    config = EngineConfig(num_blocks=129, max_model_len=512)
    arrivals = []
    for number in range(16):
        now = f"It is {7 + number // 6}:{(number * 7) % 60:02}. "
        arrivals.append(
            Arrival(6 * number, f"r{number}", now + instructions + " " + story(draw, 1), exactly(12))
        )
    play(LLMEngine(config, observer=observer), arrivals)


def salts(observer: Observer) -> None:
    """All tenants use the same template, but each tenant has its own cache salt."""
    draw = random.Random(73)
    template = story(draw, 8)
    config = EngineConfig(num_blocks=257, max_model_len=512)
    arrivals = []
    for number in range(18):
        prompt = TextPrompt(prompt=template + " " + story(draw, 1), cache_salt=f"tenant-{number % 9}")
        arrivals.append(Arrival(6 * number, f"r{number}", prompt, exactly(12)))
    play(LLMEngine(config, observer=observer), arrivals)


def _head_first(table: Table, ref_cnt: list[int]) -> list[int]:
    """The engine's `free`, except that it frees the blocks in the order of the table."""
    return copy_on_write.free(table, ref_cnt)[::-1]


def heads_first(observer: Observer) -> None:
    """Freed prompts lose their first blocks first, and a prefix without its first block cannot be found."""
    draw = random.Random(79)
    openings = [story(draw, 10) for _ in range(4)]
    config = EngineConfig(num_blocks=40, max_model_len=512, parts=Parts(free=_head_first))
    arrivals = []
    for number in range(32):
        prompt = openings[number % 4] + " " + story(draw, 1)
        arrivals.append(Arrival(14 * number, f"r{number}", prompt, exactly(12)))
    play(LLMEngine(config, observer=observer), arrivals)


SALT_CHOICES = (
    "the prompts already differ in their first block",
    "the tenants' cache salts differ",
    "the shared blocks are evicted before the next request comes",
    "prefix caching is switched off",
)


def _prompts(trace: Trace) -> dict[str, RequestAdded]:
    return {event.request_id: event for event in trace.events if isinstance(event, RequestAdded)}


def _first_difference(a: RequestAdded, b: RequestAdded) -> int:
    pairs = zip(a.prompt_token_ids, b.prompt_token_ids, strict=False)
    return next(place for place, (one, other) in enumerate(pairs) if one != other)


def find_timestamp(trace: Trace) -> Finding:
    """The first position at which two prompts differ."""
    first, second = list(_prompts(trace).values())[:2]
    place = _first_difference(first, second)
    tokens = first.prompt_token_ids, second.prompt_token_ids
    same = SequenceMatcher(None, *tokens, autojunk=False).find_longest_match().size
    size = trace.engine.block_size
    return Finding(
        place,
        f"The prompts of {first.request_id} and {second.request_id} differ at position {place}, which is in "
        f"block {place // size}: the time of day is in front of the instructions. The hash of each block "
        "contains that of the block before it, so no later block can be found either, although "
        f"{same} tokens in a row are the same. Put what changes at the end of the prompt.",
    )


def find_salts(trace: Trace) -> Finding:
    """Why a request of another tenant misses the cache, found by ruling out the other choices."""
    prompts, size = list(_prompts(trace).values()), trace.engine.block_size
    first = prompts[0]
    other = next(each for each in prompts if each.cache_salt != first.cache_salt)
    shared = _first_difference(first, other)
    stored = {
        event.seq_id: event for event in trace.events if isinstance(event, BlockStored) and not event.index
    }
    hashes = [stored[each.seq_id].block_hash for each in (first, other)]
    causes = {
        "a": shared < size,
        "b": shared >= size and hashes[0] != hashes[1],
        "c": trace.final().num_evictions > 0,
        "d": not trace.engine.enable_prefix_caching,
    }
    [cause] = [letter for letter, is_true in causes.items() if is_true]
    return Finding(
        cause,
        f"{first.request_id} and {other.request_id} share their first {shared} tokens, which is "
        f"{shared // size} full blocks, and nothing is evicted in the whole run. The tokens of their blocks "
        f"0 are equal, and the hashes are not: {hashes[0][:8]} and {hashes[1][:8]}. The salt is part of the "
        "first block's hash, and with it of every later one. That keeps tenants from learning what others "
        "ask. A template that is no secret can be served without a salt, or be computed once for each "
        "tenant.",
    )


HEAD_CHOICES = ("the first one", "the last one", "the one that fewest requests have used")


def find_heads_first(trace: Trace) -> Finding:
    """Which end of a freed prompt is evicted first."""
    index_of: dict[int, tuple[int, int]] = {}  # block -> its sequence, and its index in the sequence
    evicted: dict[int, list[int]] = {}  # sequence -> the indices of its evicted blocks, in order
    for event in trace.events:
        if isinstance(event, BlockStored):
            index_of[event.block_id] = (event.seq_id, event.index)
        elif isinstance(event, BlockRemoved):
            seq_id, index = index_of.pop(event.block_id)
            evicted.setdefault(seq_id, []).append(index)
    orders = [places for places in evicted.values() if len(places) > 1]
    rising = sum(places == sorted(places) for places in orders)
    falling = sum(places == sorted(places, reverse=True) for places in orders)
    state = trace.final()
    looked_up = sum(len(event.prompt_token_ids) for event in _prompts(trace).values())
    return Finding(
        "a" if rising > falling else "b" if falling > rising else "c",
        f"Of {len(orders)} sequences with several evicted blocks, {rising} lost them from the first block "
        f"on. A prefix is found from its first block on, so the blocks behind it keep memory and cannot be "
        f"hit: {state.num_hit_tokens} of {looked_up:,} prompt tokens were. A table must be freed from its "
        "last block to its first, so that the tail is evicted before the head.",
    )
