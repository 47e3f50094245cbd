"""Compare a beam search in the engine, with the reader's blocks, with transformers' beam search."""

from __future__ import annotations

import torch
from transformers import GenerationConfig, PreTrainedModel

from minipaged.config import EngineConfig
from minipaged.course.expect import Wrong, expect, show
from minipaged.course.oracle import TIE, llama_of
from minipaged.course.seams import ResolvedParts
from minipaged.engine.llm_engine import LLMEngine
from minipaged.engine.outputs import RequestOutput
from minipaged.errors import InvariantError
from minipaged.loading.loader import load_model
from minipaged.sampling.beam_params import BeamSearchParams

PROMPT = "Once upon a time there was a little girl who"


def expect_beams(resolved: ResolvedParts, params: BeamSearchParams) -> None:
    """Search at stage 4 with blocks of 4, and compare the hypotheses with transformers' `num_beams`.

    Args:
        resolved: the parts of the engine.
        params: only a width, a length and `ignore_eos` are set.

    Raises:
        Wrong: a hypothesis differs from transformers', or an invariant is broken.
        Exception: anything that the reader's code raises.
    """
    loaded = load_model("tiny", dtype=torch.float32, device=torch.device("cpu"))
    config = EngineConfig.at_stage(
        4,
        dtype="float32",
        device="cpu",
        block_size=4,
        num_blocks=64,
        max_model_len="auto",
        parts=resolved.parts,
    )
    engine = LLMEngine(config, loaded)
    engine.add_request("beams", PROMPT, params)
    found: list[RequestOutput] = []
    try:
        while engine.has_unfinished_requests():
            found += engine.step()
            engine.check_invariants()
    except InvariantError as error:
        held = "every invariant of the engine holds after each step"
        raise Wrong(
            case=_case(params), expected=held, got=str(error), rule="the engine checks itself"
        ) from error
    expected = _beams_of(llama_of(loaded), found[-1].prompt_token_ids, params)
    got = [(each.score or 0.0, each.token_ids) for each in found[-1].outputs]
    for rank, ((score, tokens), (best_score, best_tokens)) in enumerate(zip(got, expected, strict=True)):
        tied = [other for other_score, other in expected if abs(other_score - best_score) <= TIE]
        expect(
            abs(score - best_score) <= TIE and tokens in tied,
            case=f"{_case(params)}, hypothesis {rank}",
            expected=f"score {best_score:.4f}: {show(best_tokens)}, as transformers has it",
            got=f"score {score:.4f}: {show(tokens)}",
            rule="each beam must read its own past: was a block written that another table still names?",
        )


def _case(params: BeamSearchParams) -> str:
    return f"beam search of width {params.beam_width} in the engine with your blocks"


@torch.inference_mode()
def _beams_of(
    model: PreTrainedModel, prompt: list[int], params: BeamSearchParams
) -> list[tuple[float, list[int]]]:
    """transformers' hypotheses, best first: score and output tokens."""
    settings = GenerationConfig(
        do_sample=False,
        num_beams=params.beam_width,
        num_return_sequences=params.beam_width,
        max_new_tokens=params.max_tokens,
        length_penalty=params.length_penalty,
        early_stopping=params.early_stopping,
        eos_token_id=None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    inputs = torch.tensor([prompt])
    output = model.generate(  # pyright: ignore[reportCallIssue]
        inputs, attention_mask=torch.ones_like(inputs), generation_config=settings
    )
    return [
        (float(score), tokens[len(prompt) :].tolist())
        for tokens, score in zip(output.sequences, output.sequences_scores, strict=True)
    ]
