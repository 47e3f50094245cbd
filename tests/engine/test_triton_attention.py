"""The whole engine with the Triton kernels: the oracle's tokens, under the interpreter if need be."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from minipaged import SamplingParams
from minipaged.attention.triton_setup import prepare_triton
from minipaged.config import AttentionBackend
from minipaged.model.loader import load_model
from minipaged.parts import Parts
from tests.oracle import Oracle, make_model

from .conftest import Pair
from .driving import assert_all_free, assert_greedy, check_and_poison, greedy, make_engine, run

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [2, 7, 1, 8], [1]]


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Small, because the interpreter takes a hundredth of a second for each tile."""
    folder: Path = make_model(
        tmp_path_factory.mktemp("models") / "nano-gqa",
        num_layers=1,
        hidden_size=48,
        num_heads=3,
        num_kv_heads=1,
        head_dim=20,
        vocab_size=32,
    )
    model = load_model(str(folder), dtype=torch.float32, device=DEVICE)
    return Pair(model, Oracle.from_folder(folder))


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_greedy_tokens(nano: Pair, block_size: int) -> None:
    """Prompts in chunks next to decodes, over slots that are NaN until they are written."""
    engine = make_engine(
        nano.model,
        device="auto",
        attention_backend="triton",
        block_size=block_size,
        num_blocks=80 // block_size,
        max_model_len="auto",
        max_num_batched_tokens=6,
    )
    outputs = run(engine, PROMPTS, greedy(5), after_step=check_and_poison)
    for output in outputs:
        assert_greedy(nano.oracle, output, 5)
    assert_all_free(engine)


def test_with_the_kernel_that_writes_the_cache(nano: Pair) -> None:
    prepare_triton(DEVICE)
    from minipaged.attention.triton_cache import write_kv

    engine = make_engine(
        nano.model,
        device="auto",
        attention_backend="triton",
        block_size=4,
        num_blocks=20,
        max_model_len="auto",
        parts=Parts(write_kv=write_kv),
    )
    for output in run(engine, PROMPTS, greedy(4), after_step=check_and_poison):
        assert_greedy(nano.oracle, output, 4)


def test_preemption_and_shared_blocks(nano: Pair) -> None:
    """A pool that is too small for all at once, and samples that share a prompt's blocks: the tokens are
    those of the readable attention."""
    params = SamplingParams(n=2, max_tokens=7, seed=1, ignore_eos=True)

    def samples(backend: AttentionBackend) -> list[list[int]]:
        engine = make_engine(
            nano.model,
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
    model = load_model("tiny", dtype=torch.float32, device=DEVICE)
    engine = make_engine(model, device="auto", attention_backend="triton", num_blocks=8, max_model_len=64)
    (output,) = run(engine, [PROMPTS[0]], greedy(4))
    assert_greedy(tiny.oracle, output, 4)
