"""The whole engine with the Triton kernels, compiled or interpreted, generates the oracle's tokens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from minipaged import BeamSearchParams, SamplingParams
from minipaged.choices import AttentionBackend
from minipaged.kv import cache
from minipaged.kv.cache import BlockCopy
from minipaged.loading.loader import load_model
from minipaged.parts import Parts
from minipaged.triton_kernels.setup import prepare_triton
from tests.engine.driving import (
    assert_all_free,
    assert_greedy,
    check_and_poison,
    drain,
    greedy,
    make_engine,
    run,
)
from tests.model_pairs import Pair

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [2, 7, 1, 8], [1]]


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_greedy_tokens(nano_gqa: Pair, block_size: int) -> None:
    """Prompts in chunks next to decodes. Slots hold NaN until they are written."""
    engine = make_engine(
        nano_gqa.model,
        device="auto",
        attention_backend="triton",
        block_size=block_size,
        num_blocks=80 // block_size,
        max_model_len="auto",
        max_num_batched_tokens=6,
    )
    outputs = run(engine, PROMPTS, greedy(5), after_step=check_and_poison)
    for output in outputs:
        assert_greedy(nano_gqa.oracle, output, 5)
    assert_all_free(engine)


def test_the_cache_is_written_by_kernels_too(nano_gqa: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kernels run: for keys and values, and for the block copies of samples that share a prompt."""
    prepare_triton(DEVICE)
    from minipaged.triton_kernels import cache as triton_cache

    calls: list[str] = []

    def write_kv(kv_layer: Tensor, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None:
        calls.append("write_kv")
        original_write(kv_layer, key, value, slot_mapping)

    def copy_blocks(kv_data: Tensor, copies: Sequence[BlockCopy]) -> None:
        calls.append("copy_blocks")
        original_copy(kv_data, copies)

    original_write, original_copy = triton_cache.write_kv, triton_cache.copy_blocks
    monkeypatch.setattr(triton_cache, "write_kv", write_kv)
    monkeypatch.setattr(triton_cache, "copy_blocks", copy_blocks)
    engine = make_engine(
        nano_gqa.model,
        device="auto",
        attention_backend="triton",
        block_size=4,
        num_blocks=20,
        max_model_len=30,
    )
    (output,) = run(
        engine, [[*PROMPTS[1], 3]], greedy(3, n=2, temperature=1.0, top_k=1), after_step=check_and_poison
    )
    assert output.outputs[0].token_ids == output.outputs[1].token_ids
    assert_greedy(nano_gqa.oracle, output, 3)
    assert calls.count("write_kv") == engine.stats().num_steps
    assert calls.count("copy_blocks") == engine.stats().num_copied_blocks == 1


def test_a_readers_cache_functions_come_first(nano_gqa: Pair) -> None:
    calls: list[str] = []

    def write_kv(kv_layer: Tensor, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None:
        calls.append("write_kv")
        cache.write_kv(kv_layer, key, value, slot_mapping)

    engine = make_engine(
        nano_gqa.model,
        device="auto",
        attention_backend="triton",
        num_blocks=4,
        max_model_len=16,
        parts=Parts(write_kv=write_kv),
    )
    (output,) = run(engine, [PROMPTS[1]], greedy(2))
    assert_greedy(nano_gqa.oracle, output, 2)
    assert len(calls) == 2


def test_preemption_and_shared_blocks(nano_gqa: Pair) -> None:
    """A pool that is too small for all requests at once, and samples that share a prompt's blocks.

    The tokens are the same as with the reference attention.
    """
    params = SamplingParams(n=2, max_tokens=7, seed=1, ignore_eos=True)

    def samples(backend: AttentionBackend) -> list[list[int]]:
        engine = make_engine(
            nano_gqa.model,
            device="auto",
            attention_backend=backend,
            block_size=2,
            num_blocks=14,
            max_model_len=20,
        )
        outputs = run(engine, PROMPTS, params, after_step=check_and_poison)
        assert engine.stats().num_preemptions > 0
        assert_all_free(engine)
        return [sample.token_ids for output in outputs for sample in output.outputs]

    assert samples("triton") == samples("reference")


def test_the_embedded_model(tiny: Pair) -> None:
    """Two samples that share a prompt and copy on write, then a request whose first blocks are cached."""
    model = load_model("tiny", dtype=torch.float32, device=DEVICE)
    engine = make_engine(
        model, device="auto", attention_backend="triton", block_size=4, num_blocks=16, max_model_len=40
    )
    (output,) = run(
        engine, [PROMPTS[0]], greedy(3, n=2, temperature=1.0, top_k=1), after_step=check_and_poison
    )
    assert engine.stats().num_copied_blocks == 1
    assert output.outputs[0].token_ids == output.outputs[1].token_ids
    assert_greedy(tiny.oracle, output, 3)
    (again,) = run(engine, [[*PROMPTS[0][:9], 7, 7]], greedy(2), after_step=check_and_poison)
    assert again.num_cached_tokens == 8
    assert_greedy(tiny.oracle, again, 2)


def test_beams(nano_gqa: Pair) -> None:
    """Beams fork and copy in many steps. The hypotheses are the same as with the reference attention."""

    def hypotheses(backend: AttentionBackend) -> list[list[int]]:
        engine = make_engine(
            nano_gqa.model,
            device="auto",
            attention_backend=backend,
            block_size=4,
            num_blocks=30,
            max_model_len=40,
        )
        engine.add_request("beams", PROMPTS[0], BeamSearchParams(beam_width=3, max_tokens=4, ignore_eos=True))
        output = drain(engine, after_step=check_and_poison)["beams"]
        assert engine.stats().num_copied_blocks > 0
        return [beam.token_ids for beam in output.outputs]

    assert hypotheses("triton") == hypotheses("reference")
