"""A compiled decoder in the place of a plain one has the same weights and gives the same results."""

from __future__ import annotations

import gc
import logging
import weakref

import pytest
import torch

from minipaged.cpu import replace
from minipaged.cpu.decoder import CompiledDecoder
from minipaged.cpu.products.choice import ChosenLinear
from minipaged.cpu.replace import compiled_decoder, plain_decoder
from minipaged.errors import ConfigError
from minipaged.model.decoder import Decoder
from minipaged.model.layer import Linear
from tests.model.dense import packed_logits
from tests.model.test_decoder import decoder_like, random_tokens
from tests.oracle import FAMILIES, Family, make_config, make_hf_model

SEQUENCES = random_tokens(17, 1, 5, vocab_size=250)


def make(family: Family = "llama", **shape: object) -> Decoder:
    return decoder_like(make_hf_model(make_config(family, **shape)))  # pyright: ignore[reportArgumentType]


def compile_(decoder: Decoder, *, takes_over: bool = False) -> CompiledDecoder:
    compiled = compiled_decoder(decoder, required=True, takes_over=takes_over)
    assert isinstance(compiled, CompiledDecoder)
    return compiled


def assert_near(decoder: Decoder, expected: list[torch.Tensor]) -> None:
    for found, right in zip(packed_logits(decoder, SEQUENCES), expected, strict=True):
        assert torch.allclose(found, right, rtol=0, atol=1e-5)


@pytest.mark.parametrize("takes_over", [False, True])
@pytest.mark.parametrize("vocab_size", [256, 257])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_logits_and_the_same_weights(
    family: Family, tied: bool, vocab_size: int, takes_over: bool
) -> None:
    decoder = make(family, vocab_size=vocab_size, tied=tied)
    expected = packed_logits(decoder, SEQUENCES)
    weights = {name: view.clone() for name, view in decoder.weight_views().items()}
    num_parameters = sum(parameter.numel() for parameter in decoder.parameters())
    compiled = compile_(decoder, takes_over=takes_over)
    assert_near(compiled, expected)
    assert sum(parameter.numel() for parameter in compiled.parameters()) == num_parameters
    for name, view in compiled.weight_views().items():
        assert torch.equal(view, weights.pop(name)), name
    assert not weights
    assert all(map(torch.equal, packed_logits(plain_decoder(compiled), SEQUENCES), expected))


def test_the_given_decoder_stays_as_it_is() -> None:
    decoder = make(tied=True, vocab_size=256)
    before = packed_logits(decoder, SEQUENCES)
    weights = {name: view.clone() for name, view in decoder.weight_views().items()}
    compile_(decoder)
    assert plain_decoder(decoder) is decoder
    assert all(map(torch.equal, packed_logits(decoder, SEQUENCES), before))
    for name, view in decoder.weight_views().items():
        assert torch.equal(view, weights[name])


def test_what_is_taken_over_is_not_in_memory_twice() -> None:
    decoder = make(vocab_size=256)
    compiled = compile_(decoder, takes_over=True)
    addresses = {name: parameter.data_ptr() for name, parameter in compiled.named_parameters()}
    for name, parameter in decoder.named_parameters():
        assert parameter.data_ptr() == addresses[name], name


def test_what_is_not_a_matrix_is_shared() -> None:
    decoder = make("qwen2")
    addresses = {parameter.data_ptr() for parameter in compile_(decoder).parameters()}
    for parameter in decoder.parameters():
        assert parameter.dim() == 2 or parameter.data_ptr() in addresses


def test_it_is_made_once_and_lives_as_long_as_the_plain_one() -> None:
    decoder = make()
    compiled = compile_(decoder)
    assert compiled_decoder(decoder, required=False, takes_over=False) is compiled
    assert compiled_decoder(compiled, required=False, takes_over=False) is compiled
    plain = weakref.ref(plain_decoder(compiled))
    assert plain_decoder(compiled) is plain()
    gone = weakref.ref(compiled)
    del decoder, compiled
    gc.collect()
    assert gone() is None
    assert plain() is None


def test_a_larger_model_is_compiled_if_a_trial_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replace, "TRIAL_BYTES", 0)
    for pays in (True, False):
        monkeypatch.setattr(replace, "panels_pay", lambda weights, product, answer=pays: answer)
        decoder = make()
        expected = packed_logits(decoder, SEQUENCES)
        for takes_over in (False, True):
            chosen = compiled_decoder(decoder, required=False, takes_over=takes_over)
            assert isinstance(chosen, CompiledDecoder) == pays
            assert_near(chosen, expected)


def test_where_panels_do_not_pay_the_chosen_products_have_the_same_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replace, "TRIAL_BYTES", 0)
    monkeypatch.setattr(replace, "panels_pay", lambda weights, product: False)
    decoder = make("qwen2", tied=True)
    expected = packed_logits(decoder, SEQUENCES)
    chosen = compiled_decoder(decoder, required=False, takes_over=False)
    projections = [module for module in chosen.modules() if isinstance(module, Linear | ChosenLinear)]
    assert len(projections) == 4 * decoder.config.num_layers + 1
    assert all(isinstance(module, ChosenLinear) for module in projections)
    assert [p.data_ptr() for p in chosen.parameters()] == [p.data_ptr() for p in decoder.parameters()]
    assert_near(chosen, expected)
    assert not any(isinstance(module, ChosenLinear) for module in decoder.modules())
    assert compile_(decoder) is not chosen, "what is required is compiled without a trial"


def test_what_is_not_compiled_runs_as_it_is_or_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    decoder = make(hidden_size=84)
    with caplog.at_level(logging.INFO):
        assert compiled_decoder(decoder, required=False, takes_over=True) is decoder
    assert "run in PyTorch" in caplog.text
    assert "hidden_size (84) is not a multiple of 32" in caplog.text
    with pytest.raises(ConfigError, match=r"compiled_layers=True.*hidden_size \(84\)"):
        compiled_decoder(decoder, required=True, takes_over=False)
