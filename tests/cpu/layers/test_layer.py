"""The halves of a compiled layer, compared with the same halves in PyTorch."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from minipaged.cpu.decoder import CompiledDecoder
from minipaged.cpu.layers import layer as compiled_layer
from minipaged.cpu.layers.layer import CompiledLayer
from minipaged.cpu.replace import compiled_decoder
from minipaged.model.config import ModelConfig
from minipaged.model.decoder import Decoder
from minipaged.model.layer import Layer
from minipaged.model.rope import RotaryEmbedding
from tests.long_tests import examples
from tests.model.dense import packed_logits
from tests.model.test_decoder import CPU, decoder_like, random_tokens
from tests.oracle import FAMILIES, Family, config_of, make_config, make_hf_model
from tests.torch_threads import torch_threads

EPS = 2**-7
"""How far two bfloat16 may differ that were rounded from sums in different orders."""


def two_kinds(config: ModelConfig, dtype: torch.dtype, seed: int = 0) -> tuple[Layer, CompiledLayer]:
    """A layer with random weights in PyTorch, and the same layer compiled."""
    plain = Decoder(config, dtype, CPU)
    generator = torch.Generator().manual_seed(seed)
    for parameter in plain.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    fast = compiled_decoder(plain, required=True, takes_over=False)
    assert isinstance(fast, CompiledDecoder)
    return plain.layers[0], fast.compiled_layers[0]


def inputs(config: ModelConfig, dtype: torch.dtype, num_tokens: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """hidden, cos, sin, attended"""
    generator = torch.Generator().manual_seed(num_tokens)
    positions = torch.randint(0, 5000, (num_tokens,), generator=generator)
    cos, sin = RotaryEmbedding(config.rope, config.head_dim, CPU)(positions, dtype)
    hidden = torch.randn(num_tokens, config.hidden_size, generator=generator)
    attended = torch.randn(num_tokens, config.num_heads, config.head_dim, generator=generator)
    return hidden.to(dtype), cos, sin, attended.to(dtype)


@settings(max_examples=examples(40), deadline=None)
@given(
    family=st.sampled_from(FAMILIES),
    kv_heads=st.sampled_from([1, 2, 4]),
    head_dim=st.sampled_from([32, 64, 96]),
    bias=st.booleans(),
    num_tokens=st.integers(0, 30),
    num_threads=st.sampled_from([1, 2, 3]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
@torch.inference_mode()
def test_the_halves(
    family: Family,
    kv_heads: int,
    head_dim: int,
    bias: bool,
    num_tokens: int,
    num_threads: int,
    dtype: torch.dtype,
) -> None:
    hf = make_config(
        family,
        num_heads=4,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        attention_bias=bias and family in ("llama", "qwen3"),
    )
    config = config_of(hf)
    plain, fast = two_kinds(config, dtype)
    hidden, cos, sin, attended = inputs(config, dtype, num_tokens)
    given_hidden, given_attended = hidden.clone(), attended.clone()
    with torch_threads(num_threads):
        heads = fast.before_attention(hidden, cos, sin)
        after = fast.after_attention(hidden, attended)
    rtol, atol = (1e-4, 1e-4) if dtype == torch.float32 else (2 * EPS, 4 * EPS)
    expected = *plain.before_attention(hidden, cos, sin), plain.after_attention(hidden, attended)
    for ours, theirs in zip((*heads, after), expected, strict=True):
        assert ours.dtype == theirs.dtype == dtype
        assert ours.shape == theirs.shape
        assert torch.allclose(ours.float(), theirs.float(), rtol=rtol, atol=atol)
    assert torch.equal(hidden, given_hidden)
    assert torch.equal(attended, given_attended)


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
@torch.inference_mode()
def test_a_token_is_the_same_in_any_company_and_on_any_threads(
    num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal to the last bit, even if a step is cut into pieces and the last piece is not full."""
    config = config_of(make_config("llama"))
    _, fast = two_kinds(config, torch.float32)
    hidden, cos, sin, attended = inputs(config, torch.float32, 90)
    together = *fast.before_attention(hidden, cos, sin), fast.after_attention(hidden, attended)
    monkeypatch.setattr(compiled_layer, "TOKENS_AT_ONCE", 40)
    monkeypatch.setattr("minipaged.cpu.compiler.threads.WORTH_THREADS", 1e-3)
    with torch_threads(num_threads):
        for some in (slice(0, 90), slice(0, 1), slice(7, 20), slice(35, 90)):
            halves = (
                *fast.before_attention(hidden[some], cos[some], sin[some]),
                fast.after_attention(hidden[some], attended[some]),
            )
            for part, whole in zip(halves, together, strict=True):
                assert torch.equal(part, whole[some])


@pytest.mark.parametrize(("hidden_size", "intermediate_size"), [(64, 4096), (2048, 64)])
@torch.inference_mode()
def test_wide_matrices(hidden_size: int, intermediate_size: int) -> None:
    """The rows are too many to be multiplied together: x would not stay in the cache."""
    config = config_of(
        make_config("llama", hidden_size=hidden_size, intermediate_size=intermediate_size, num_layers=1)
    )
    plain, fast = two_kinds(config, torch.float32)
    hidden, cos, sin, attended = inputs(config, torch.float32, 90)
    expected = *plain.before_attention(hidden, cos, sin), plain.after_attention(hidden, attended)
    ours = *fast.before_attention(hidden, cos, sin), fast.after_attention(hidden, attended)
    for result, right in zip(ours, expected, strict=True):
        assert torch.allclose(result, right, rtol=1e-4, atol=1e-3)


@torch.inference_mode()
def test_a_nan_stays_in_its_token() -> None:
    config = config_of(make_config("llama"))
    _, fast = two_kinds(config, torch.float32)
    hidden, cos, sin, attended = inputs(config, torch.float32, 3)
    hidden[1, 5] = torch.nan
    for result in (*fast.before_attention(hidden, cos, sin), fast.after_attention(hidden, attended)):
        assert result[1].isnan().any()
        assert not result[[0, 2]].isnan().any()


@torch.inference_mode()
def test_what_does_not_fit_is_refused() -> None:
    """Compiled code would read past the end."""
    config = config_of(make_config("llama"))
    _, fast = two_kinds(config, torch.float32)
    hidden, cos, sin, attended = inputs(config, torch.float32, 3)
    for broken in ((hidden[:, 1:], cos, sin), (hidden, cos[:2], sin), (hidden, cos, sin.bfloat16())):
        with pytest.raises(ValueError, match="is not"):
            fast.before_attention(*broken)
    for broken in ((hidden.bfloat16(), attended), (hidden, attended[:2]), (hidden, attended[..., :4])):
        with pytest.raises(ValueError, match="is not"):
            fast.after_attention(*broken)


@torch.inference_mode()
def test_operands_that_are_views() -> None:
    config = config_of(make_config("llama"))
    _, fast = two_kinds(config, torch.float32)
    hidden, *_, attended = inputs(config, torch.float32, 4)
    expected = fast.after_attention(hidden, attended)
    strided = torch.cat((hidden, hidden), dim=1)[:, : config.hidden_size]
    assert torch.equal(
        fast.after_attention(strided, attended.transpose(0, 1).contiguous().transpose(0, 1)), expected
    )


def test_engines_in_two_threads_may_share_a_model() -> None:
    """Two engines do not share the intermediate results of a layer."""
    plain = decoder_like(make_hf_model(make_config("llama", vocab_size=256)))
    decoder = compiled_decoder(plain, required=True, takes_over=False)
    halves = [random_tokens(*lengths, vocab_size=256) for lengths in ((40, 3), (25, 60))]
    expected = [packed_logits(decoder, half) for half in halves]
    begin = threading.Barrier(2)

    def compute(i: int) -> bool:
        begin.wait()
        torch.set_num_threads(1)
        return all(
            torch.equal(ours, theirs)
            for _ in range(100)
            for ours, theirs in zip(packed_logits(decoder, halves[i]), expected[i], strict=True)
        )

    with torch_threads(1), ThreadPoolExecutor(2) as pool:
        assert all(pool.map(compute, range(2)))
