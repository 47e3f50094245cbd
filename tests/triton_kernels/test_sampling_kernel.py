"""The kernel that samples, compared with the filters and the draw of `minipaged/sampling/`."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from minipaged import EngineConfig
from minipaged.engine import assembly
from minipaged.sampling import sampler
from minipaged.sampling.params import SamplingParams
from minipaged.sampling.sampler import SamplingRow, sample
from minipaged.triton_kernels import sampling as kernel
from tests.sampling.test_sampler import logits_for, sampling_rows

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def both(logits: Tensor, params: list[SamplingParams], uniforms: list[float]) -> tuple[list[int], list[int]]:
    """The tokens of the kernel and of PyTorch. Rows may be drawn from in any order, and several times."""
    logits = logits.to(DEVICE)
    rows = [i % len(logits) for i in reversed(range(len(params)))]
    likeliest = logits.argmax(dim=-1)
    found, expected = (
        function(logits, rows, likeliest, params, uniforms).tolist()
        for function in (kernel.draw_tokens, sampler.draw_tokens)
    )
    return found, expected


FILTERS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.1, 0.7, 1.0, 3.0]),
    top_k=st.sampled_from([0, 0, 1, 2, 5, 40, 1000]),
    top_p=st.sampled_from([1.0, 1.0, 0.05, 0.5, 0.9, 0.999]),
    min_p=st.sampled_from([0.0, 0.0, 0.01, 0.2, 1.0]),
)


@pytest.fixture(params=[(1024, 4096), (16, 64)], ids=["as it is", "tiny tiles and lists"])
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small ones, rows have several tiles, and filters keep more tokens than a list holds."""
    monkeypatch.setattr(kernel, "CANDIDATES", request.param[0])
    monkeypatch.setattr(kernel, "TILE", request.param[1])


@pytest.mark.usefixtures("tiles")
@settings(max_examples=6, deadline=None)
@given(
    vocab_size=st.sampled_from([1, 3, 17, 64, 300]),
    spread=st.sampled_from([0.0, 0.5, 3.0, 30.0]),
    seed=st.integers(0, 999),
    params=st.lists(FILTERS, min_size=2, max_size=2),
    uniforms=st.lists(st.floats(0, 1, exclude_max=True), min_size=2, max_size=2),
)
def test_the_same_tokens(
    vocab_size: int, spread: float, seed: int, params: list[SamplingParams], uniforms: list[float]
) -> None:
    generator = torch.Generator("cpu").manual_seed(seed)
    logits = torch.randn(3, vocab_size, generator=generator) * spread
    if seed % 2:
        logits = logits.round()  # with many equal ones
    if seed % 3 == 0:
        logits[:, ::3] = float("-inf")
        logits[:, -1] = 0.0
    found, expected = both(logits, params, uniforms)
    assert found == expected


@settings(max_examples=6, deadline=None)
@given(
    rows=st.lists(sampling_rows(), min_size=3, max_size=3),
    seed=st.integers(0, 999),
    fault=st.sampled_from([None, float("nan"), float("inf"), float("-inf")]),
)
def test_in_the_sampler(rows: list[SamplingRow], seed: int, fault: float | None) -> None:
    """Beside greedy rows, after penalties and bans, and beside a row without a sound logit."""
    logits = logits_for(3, seed).to(DEVICE)
    if fault is not None:
        logits[1, 2:] = fault
    assert sample(logits, rows, kernel.draw_tokens) == sample(logits, rows)


@pytest.mark.parametrize("uniform", [0.0, 0.249999, 0.25, 0.5, 0.75, 0.999999])
def test_equal_tokens_have_equal_parts(uniform: float) -> None:
    """The draw is in the order of the ids. Of equal tokens, top-p keeps the first, and top-k all."""
    logits = torch.tensor([[0.0, float("-inf"), 0.0, 0.0, 0.0, -9.0]])
    params = [SamplingParams(top_k=1), SamplingParams(top_p=0.4), SamplingParams(min_p=0.5)]
    found, expected = both(logits, params, [uniform] * 3)
    kept = [0, 2, 3, 4]
    assert found == expected == [kept[int(4 * uniform)], kept[int(2 * uniform)], kept[int(4 * uniform)]]


@pytest.mark.parametrize("seed", range(8))
def test_the_largest_uniform_number_draws_the_last_token_that_is_kept(seed: int) -> None:
    """Rounded sums may end below the point that the number stands for."""
    logits = torch.randn(1, 300, generator=torch.Generator("cpu").manual_seed(seed))
    params = [
        SamplingParams(),
        SamplingParams(top_p=0.87),
        SamplingParams(top_k=40),
        SamplingParams(min_p=0.1),
    ]
    found, expected = both(logits, params, [1 - 2**-53] * 4)
    assert found == expected


def test_a_row_of_a_real_vocabulary() -> None:
    generator = torch.Generator("cpu").manual_seed(0)
    logits = torch.randn(1, 50_000, generator=generator) * 2
    params = [
        SamplingParams(),
        SamplingParams(top_k=50, top_p=0.9),
        SamplingParams(min_p=0.1),
        SamplingParams(top_p=0.2),
    ]
    found, expected = both(logits, params, [0.1, 0.35, 0.6, 0.85])
    assert found == expected


def test_an_engine_draws_with_the_kernel_only_on_cuda() -> None:
    """On a CPU, and with the attention that is written for reading, it draws with what is read."""
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    auto, readable = EngineConfig(), EngineConfig(attention_backend="reference")
    assert assembly._choose_draw(auto, cuda) is kernel.draw_tokens
    for config, device in ((readable, cuda), (auto, cpu), (EngineConfig(attention_backend="triton"), cpu)):
        assert assembly._choose_draw(config, device) is sampler.draw_tokens
