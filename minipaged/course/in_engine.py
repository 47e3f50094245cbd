"""Run the reader's code in the real engine, on the embedded model, and compare its tokens with the oracle's.

The oracle is transformers with the same weights; see `oracle.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

import torch
from transformers import PreTrainedModel

from minipaged.config import EngineConfig
from minipaged.course.expect import Wrong, expect, show
from minipaged.course.oracle import TIE, distance_to_greedy, llama_of
from minipaged.course.seams import ResolvedParts
from minipaged.engine.llm_engine import LLMEngine
from minipaged.engine.outputs import RequestOutput
from minipaged.errors import InvariantError
from minipaged.loading.loader import load_model
from minipaged.options import EngineOptions
from minipaged.sampling.params import SamplingParams

PROMPTS = (
    "Once upon a time there was a little girl who",
    "The old dog",
    "Once upon a time there was a little boy. He had a red ball, and",
)
"""Prompts of different lengths, so that blocks fill unevenly. Two prompts have a common beginning."""


def run_in_engine(
    resolved: ResolvedParts,
    *,
    stage: int = 8,
    prompts: Sequence[str] = PROMPTS,
    params: SamplingParams | None = None,
    after_step: Callable[[LLMEngine], None] = LLMEngine.check_invariants,
    may_be_idle: Sequence[str] = (),
    **options: Unpack[EngineOptions],
) -> LLMEngine:
    """Serve some prompts with the reader's parts, and compare the greedy tokens with the oracle's.

    Args:
        resolved: the engine's parts. The engine must call each part that the reader has written, or the test
            proves nothing.
        stage: the stage of the engine, 1 to 8.
        prompts: the prompts, which are served together.
        params: sampling parameters. By default, each prompt gets 24 tokens by greedy decoding.
        after_step: called after every step. By default the engine checks its own bookkeeping.
        may_be_idle: the reader's parts that this run need not call.
        options: further options of `EngineConfig`.

    Returns:
        The engine after the run.

    Raises:
        Wrong: a token differs from the oracle's, an invariant is broken, or a part was not called.
        Exception: anything that the reader's code raises.
    """
    loaded = load_model("tiny", dtype=torch.float32, device=torch.device("cpu"))
    defaults = EngineOptions(
        dtype="float32", device="cpu", num_blocks=64, max_model_len="auto", parts=resolved.parts
    )
    engine = LLMEngine(EngineConfig.at_stage(stage, **(defaults | options)), loaded)
    greedy = params or SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    for number, prompt in enumerate(prompts):
        engine.add_request(str(number), prompt, greedy)
    finished: dict[str, RequestOutput] = {}
    try:
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    finished[output.request_id] = output
            after_step(engine)
    except InvariantError as error:
        held = "every invariant of the engine holds after each step"
        raise Wrong(
            case=_ran(resolved), expected=held, got=str(error), rule="the engine checks itself"
        ) from error
    oracle = llama_of(loaded)
    for number in range(len(prompts)):
        _expect_greedy(oracle, finished[str(number)], resolved)
    for row in resolved.table():
        if row.num_calls == 0 and row.part not in may_be_idle:
            expect(
                False,
                case=_ran(resolved),
                rule=f"the engine runs with your {row.part} (exercise {row.exercise}), but never called it",
            )
    return engine


def _expect_greedy(oracle: PreTrainedModel, output: RequestOutput, resolved: ResolvedParts) -> None:
    for completion in output.outputs:
        gaps = distance_to_greedy(oracle, output.prompt_token_ids, completion.token_ids)
        wrong = next((i for i, gap in enumerate(gaps) if gap > TIE), None)
        if wrong is not None:
            raise Wrong(
                case=f"{_ran(resolved)}, prompt {output.prompt!r}",
                expected="the tokens that transformers gives",
                got=f"another token at place {wrong} of the output: {show(completion.token_ids)}",
                rule="greedy tokens do not depend on how keys and values are stored",
            )


def _ran(resolved: ResolvedParts) -> str:
    return f"the engine with your {', '.join(resolved.written)}"
