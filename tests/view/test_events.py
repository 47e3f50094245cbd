"""Events between two steps, found by comparing two snapshots."""

from __future__ import annotations

from collections import Counter

from minipaged.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine
from minipaged.loading.loader import LoadedModel
from minipaged.sampling.params import SamplingParams
from minipaged.view.events import events
from minipaged.view.labels import Labels
from minipaged.view.pool_snapshot import take_snapshot


def test_each_event_of_a_run_is_told_once(tiny: LoadedModel) -> None:
    # 7 blocks of 4 tokens: three prompts of two blocks fit. Their outputs need two more blocks each.
    config = EngineConfig(block_size=4, num_blocks=8, max_model_len=16, dtype="float32", device="cpu")
    engine, labels, told = LLMEngine(config, tiny), Labels(), Counter[str]()
    for i in range(3):
        params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
        engine.add_request(f"r{i}", [5, 5, 5, 5, i, 1, 2, 3], params)
    before = take_snapshot(engine)
    lines = []
    while engine.has_unfinished_requests():
        engine.step()
        after = take_snapshot(engine)
        lines += events(before, after, labels)
        before = after
    told.update(line.split(": ", 1)[1].split()[1].strip(":") for line in lines)
    assert told["admitted"] == 3
    assert told["ended"] == 3
    assert told["preempted"] == engine.stats().num_preemptions > 0
    assert told["resumed"] == told["preempted"]
    assert lines[0] == "step 1: A admitted: 2 blocks, 1 of them shared"
    assert any("loses" in line for line in lines)


def test_a_step_without_events_has_no_lines(tiny: LoadedModel) -> None:
    engine = LLMEngine(EngineConfig(num_blocks=65, dtype="float32", device="cpu"), tiny)
    engine.add_request("r", [1, 2, 3], SamplingParams(max_tokens=5, ignore_eos=True))
    engine.step()
    before = take_snapshot(engine)
    engine.step()
    assert events(before, take_snapshot(engine), Labels()) == []
