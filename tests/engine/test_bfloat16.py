"""bfloat16 on the fast path: transformers' greedy tokens in bfloat16, up to near ties.

A bfloat16 has 8 significant bits, and two engines that add in different orders round differently. So if the
logits of two tokens differ by less than these rounding errors, either may win.
"""

from __future__ import annotations

import pytest
import torch

from minipaged import LLM, SamplingParams
from minipaged.cpu.decoder import CompiledDecoder
from minipaged.loading.locations import TINY_FOLDER
from tests.oracle import Oracle

PROMPTS = (
    "One day, a little fox",
    "Lily had a red ball.",
    "The rain did not stop",
    "Tom and his sister went",
)
LENGTH = 48

NEAR_TIE = 2**-4
"""The largest difference of two float32 logits that counts as a tie. They are around 10, where neighbouring
bfloat16 numbers differ by this much."""


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny", dtype="bfloat16", max_model_len=128, num_blocks=64, device="cpu")


def test_the_tokens_are_those_of_transformers_up_to_near_ties(llm: LLM) -> None:
    assert isinstance(llm.engine.model.decoder, CompiledDecoder)
    params = SamplingParams(temperature=0, max_tokens=LENGTH, ignore_eos=True)
    oracle, exact = Oracle.from_folder(TINY_FOLDER, torch.bfloat16), Oracle.from_folder(TINY_FOLDER)
    num_equal = 0
    for output in llm.generate(list(PROMPTS), params):
        prompt, ours = list(output.prompt_token_ids), list(output.outputs[0].token_ids)
        theirs = oracle.greedy(prompt, LENGTH)
        equal = next((i for i in range(LENGTH) if ours[i] != theirs[i]), LENGTH)
        num_equal += equal
        if equal < LENGTH:
            logits = exact.logits(prompt + ours[:equal])[-1]
            assert abs(logits[ours[equal]] - logits[theirs[equal]]) < NEAR_TIE
    assert num_equal > len(PROMPTS) * LENGTH // 2
