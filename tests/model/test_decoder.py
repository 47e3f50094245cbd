"""The decoder computes what transformers computes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from minipaged.model.decoder import Decoder
from tests.model.dense import dense_attend, packed_logits
from tests.oracle import FAMILIES, Family, Oracle, config_of, make_config, make_hf_model

CPU = torch.device("cpu")
LLAMA3: dict[str, float | str] = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR: dict[str, float | str] = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}


def decoder_like(hf: PreTrainedModel, dtype: torch.dtype = torch.float32) -> Decoder:
    """Our decoder with the weights of a transformers model."""
    decoder = Decoder(config_of(hf.config), dtype, CPU)
    weights = hf.state_dict()
    for name, slot in decoder.weight_views().items():
        slot.copy_(weights[name])
    return decoder


def random_tokens(*lengths: int, vocab_size: int = 257, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(vocab_size, (n,), generator=generator).tolist() for n in lengths]


def largest_difference(hf: PreTrainedModel, sequences: list[list[int]]) -> float:
    ours = packed_logits(decoder_like(hf), sequences)
    oracle = Oracle(hf)
    return max(
        (oracle.logits(sequence) - logits).abs().max().item()
        for sequence, logits in zip(sequences, ours, strict=True)
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4], ids=["MQA", "GQA", "MHA"])
def test_logits_equal_transformers(family: Family, tied: bool, kv_heads: int) -> None:
    hf = make_hf_model(make_config(family, num_heads=4, num_kv_heads=kv_heads, tied=tied))
    assert largest_difference(hf, random_tokens(7, 1, 33, 2)) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head_dim", [32, 64, 80, 128])
def test_head_dimensions(family: Family, head_dim: int) -> None:
    hf = make_hf_model(make_config(family, head_dim=head_dim))
    assert largest_difference(hf, random_tokens(19)) < 1e-4


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_biases_in_attention(family: Family) -> None:
    hf = make_hf_model(make_config(family, attention_bias=True))
    assert largest_difference(hf, random_tokens(19)) < 1e-4


@pytest.mark.parametrize("rope", [LLAMA3, LINEAR], ids=["llama3", "linear"])
def test_rope_scaling(rope: dict[str, float | str]) -> None:
    hf = make_hf_model(make_config(rope=rope))
    sequences = random_tokens(300, 5)
    assert largest_difference(hf, sequences) < 1e-4
    # The scaling matters here: without it the results would be far off.
    plain = make_hf_model(make_config(rope={"rope_type": "default", "rope_theta": rope["rope_theta"]}))
    assert (Oracle(hf).logits(sequences[0]) - Oracle(plain).logits(sequences[0])).abs().max() > 1e-2


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    family=st.sampled_from(FAMILIES),
    heads=st.sampled_from([(1, 1), (2, 1), (6, 2), (3, 3)]),
    head_dim=st.sampled_from([2, 16, 32, 80]),
    tied=st.booleans(),
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=4),
)
def test_any_shape(
    family: Family, heads: tuple[int, int], head_dim: int, tied: bool, lengths: list[int]
) -> None:
    config = make_config(
        family, hidden_size=48, num_heads=heads[0], num_kv_heads=heads[1], head_dim=head_dim, tied=tied
    )
    assert largest_difference(make_hf_model(config), random_tokens(*lengths)) < 1e-4


def test_neighbours_in_a_step_change_nothing() -> None:
    decoder = decoder_like(make_hf_model(make_config("qwen3")))
    first, second, third = random_tokens(5, 12, 9)
    alone = packed_logits(decoder, [second])[0]
    among = packed_logits(decoder, [first, second, third])[1]
    assert torch.allclose(alone, among, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_follows_transformers(dtype: torch.dtype) -> None:
    hf = make_hf_model(make_config("qwen3"))
    ours = decoder_like(hf, dtype)
    sequence = random_tokens(20)[0]
    with torch.inference_mode():
        theirs = hf.to(dtype)(torch.tensor([sequence])).logits[0].float()  # pyright: ignore
    logits = packed_logits(ours, [sequence])[0]
    assert logits.dtype == torch.float32
    assert (logits - theirs).abs().max() < 0.1


def test_logits_are_for_the_rows_given() -> None:
    decoder = decoder_like(make_hf_model(make_config(tied=True)))
    sequence = random_tokens(9)[0]
    with torch.inference_mode():
        hidden = decoder(torch.tensor(sequence), torch.arange(9), dense_attend([9]))
        rows = decoder.logits(hidden[[8, 3]])
    assert rows.shape == (2, 257)
    assert torch.allclose(rows, packed_logits(decoder, [sequence])[0][[8, 3]], atol=1e-5)


def test_attend_gets_each_layer_in_order_with_heads_apart() -> None:
    decoder = decoder_like(make_hf_model(make_config(num_heads=4, num_kv_heads=2, head_dim=32, num_layers=3)))
    seen: list[tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []

    def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        seen.append((layer, tuple(q.shape), tuple(k.shape), tuple(v.shape)))
        assert q[0].is_contiguous()
        assert k[0].is_contiguous()
        assert v[0].is_contiguous()
        return q

    decoder(torch.tensor([1, 2, 3]), torch.arange(3), attend)
    assert seen == [(i, (3, 4, 32), (3, 2, 32), (3, 2, 32)) for i in range(3)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [False, True])
def test_slots_cover_every_parameter_once(family: Family, tied: bool) -> None:
    hf = make_hf_model(make_config(family, tied=tied))
    decoder = Decoder(config_of(hf.config), torch.float32, CPU)
    for parameter in decoder.parameters():
        parameter.data.zero_()
    slots = decoder.weight_views()
    for slot in slots.values():
        slot.add_(1)
    # Shared memory: adding to the views changed the parameters; once each: none became 2.
    assert all(bool((parameter == 1).all()) for parameter in decoder.parameters())
    theirs = {name for name, _ in hf.named_parameters()}
    assert slots.keys() == theirs


def test_no_gradients() -> None:
    decoder = decoder_like(make_hf_model(make_config()))
    assert not any(parameter.requires_grad for parameter in decoder.parameters())
