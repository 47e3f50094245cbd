"""How many files a reader opens to follow one request from `LLM.generate` to its text."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import minipaged
from minipaged import LLM, SamplingParams

PACKAGE = Path(minipaged.__file__).parent
MOST_FILES = 33
"""A number to lower. It may not rise: each new stop on the way must take the place of another."""

PROMPT = "Once upon a time there was a little girl named Lily who liked to play in the park with her friends."


def test_the_way_of_a_greedy_request_with_a_prefix_hit() -> None:
    llm = LLM("tiny", attention_backend="reference")  # stage 8, in plain PyTorch
    params = SamplingParams(temperature=0, max_tokens=4)
    llm.generate([PROMPT], params)
    entered: set[str] = set()

    def note(frame: FrameType, event: str, arg: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            entered.add(str(path.relative_to(PACKAGE)))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        [output] = llm.generate([PROMPT], params)
    finally:
        sys.setprofile(before)
    assert output.num_cached_tokens
    assert output.outputs[0].text
    assert {"llm.py", "engine/llm_engine.py", "scheduler/scheduler.py", "model/layer.py"} <= entered
    assert len(entered) <= MOST_FILES, sorted(entered)
