"""Decoders with fused kernels: the results of plain ones with fewer launches. What they do not know stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from minipaged import EngineConfig
from minipaged.attention.paged_layout import PagedLayout
from minipaged.choices import AttentionBackend
from minipaged.engine import assembly
from minipaged.errors import ConfigError
from minipaged.kv.block_table import slot_mapping
from minipaged.kv.cache import KVCache
from minipaged.loading.random_weights import fill_random
from minipaged.model.config import ModelConfig
from minipaged.model.decoder import Decoder
from minipaged.model.layer import Layer, Mlp, RMSNorm
from minipaged.runner.capture import Replay
from minipaged.runner.decode_graphs import DecodeGraphs
from minipaged.triton_kernels import cache as triton_cache
from minipaged.triton_kernels import decode, decode_split, fused, layer_kernels
from minipaged.triton_kernels.attention import TritonAttention
from minipaged.triton_kernels.fused import fused_decoder, why_not_fused
from minipaged.triton_kernels.fused_decoder import FusedDecoder
from tests.engine.driving import assert_greedy, greedy, make_engine, run
from tests.model_pairs import Pair
from tests.oracle import FAMILIES, Family, config_of, make_config
from tests.triton_kernels.launches import Launches
from tests.triton_kernels.steps import gpu_with

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = [torch.float32, torch.float16]
if DEVICE.type == "cuda":
    DTYPES += [torch.bfloat16]  # to which Triton's interpreter truncates, where a GPU rounds
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [2, 7, 1, 8], [1]]


def make(config: ModelConfig, dtype: torch.dtype = torch.float32, of: type[Decoder] = Decoder) -> Decoder:
    decoder = of(config, dtype, DEVICE)
    fill_random(decoder.weight_views(), seed=0)
    return decoder


def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """No attention, but something of all three."""
    group = query.shape[1] // key.shape[1]
    return query + (key * value).repeat_interleave(group, dim=1) * (layer + 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_read_in_the_model_folder_is_fused(family: Family, dtype: torch.dtype) -> None:
    plain = make(config_of(make_config(family)), dtype)
    assert why_not_fused(plain) is None
    decoder = fused_decoder(plain, required=True)
    assert type(decoder) is FusedDecoder
    assert decoder.weight_views().keys() == plain.weight_views().keys()
    token_ids, positions = torch.tensor([[3, 1, 4, 1], [0, 1, 2, 500]], device=DEVICE)
    with torch.inference_mode():
        found, expected = (each(token_ids, positions, attend).float() for each in (decoder, plain))
    assert float((found - expected).norm() / expected.norm()) < fused.TOLERANCES[dtype]


def test_greedy_tokens(nano_gqa: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an engine, with prompts in chunks beside decodes."""
    asked: list[bool] = []

    def choose(config: EngineConfig, decoder: Decoder, *, is_own: bool) -> Decoder:
        asked.append(is_own)
        return fused_decoder(decoder, required=True)

    monkeypatch.setattr(assembly, "_choose_decoder", choose)
    engine = make_engine(
        nano_gqa.model,
        device="auto",
        attention_backend="triton",
        block_size=4,
        num_blocks=20,
        max_model_len="auto",
        max_num_batched_tokens=6,
    )
    for output in run(engine, PROMPTS, greedy(5)):
        assert_greedy(nano_gqa.oracle, output, 5)
    assert asked == [False]


# What an engine on a CUDA device takes.


@pytest.mark.parametrize(
    ("backend", "compiled_layers", "is_fused"),
    [
        ("auto", None, True),
        ("triton", None, True),
        ("reference", None, False),
        ("auto", False, False),
        ("reference", True, True),
    ],
)
def test_plain_layers_where_they_are_asked_for(
    backend: AttentionBackend, compiled_layers: bool | None, is_fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages 1 to 4 have the backend `reference`."""
    plain = make(config_of(make_config("llama")))
    monkeypatch.setattr(Decoder, "device", property(lambda self: torch.device("cuda")))
    monkeypatch.setattr(fused, "why_not_fused", lambda decoder: None)
    config = EngineConfig(attention_backend=backend, compiled_layers=compiled_layers)
    decoder = assembly._choose_decoder(config, plain, is_own=True)
    assert type(decoder) is (FusedDecoder if is_fused else Decoder)
    assert decoder.embed_tokens is plain.embed_tokens


class ScaledDecoder(Decoder):
    """Embeddings that are scaled, as Gemma's are."""

    def enter(self, token_ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden, cos, sin = super().enter(token_ids, positions)
        return hidden * self.config.hidden_size**0.5, cos, sin


def test_another_decoder_is_not_fused() -> None:
    other = make(config_of(make_config("llama")), of=ScaledDecoder)
    assert "ScaledDecoder" in str(why_not_fused(other))
    assert fused_decoder(other, required=False) is other
    with pytest.raises(ConfigError, match=r"compiled_layers=True, but the fused kernels .*ScaledDecoder"):
        fused_decoder(other, required=True)


def relu_forward(self: Mlp, hidden: Tensor) -> Tensor:
    gate, up = self.gate_up_proj(hidden).chunk(2, dim=-1)
    return self.down_proj(F.relu(gate).mul_(up))


def no_residual(self: Layer, hidden: Tensor, attended: Tensor) -> Tensor:
    hidden = self.self_attn.o_proj(attended.flatten(-2))
    return hidden + self.mlp(self.post_attention_layernorm(hidden))


@pytest.mark.parametrize(
    ("where", "name", "edit"),
    [
        (Mlp, "forward", relu_forward),
        (Layer, "after_attention", no_residual),
        (Layer, "before_attention", lambda self, hidden, cos, sin: self.self_attn.heads(hidden, cos, sin)),
        (RMSNorm, "forward", lambda self, x: F.rms_norm(x, x.shape[-1:], self.weight, self.eps) + 0.1),
    ],
)
def test_code_that_was_edited_runs_as_it_is(
    where: type, name: str, edit: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = make(config_of(make_config("qwen3")))
    assert why_not_fused(plain) is None
    monkeypatch.setattr(where, name, edit)
    assert "apart" in str(why_not_fused(plain))
    assert fused_decoder(plain, required=False) is plain


# Launches.


def launches_of_a_step(
    decoder_of: type[Decoder], num_seqs: int, monkeypatch: pytest.MonkeyPatch
) -> Counter[str]:
    """What a recorded decode step of a model shaped like Qwen3-0.6B launches."""
    shape = make_config(
        "qwen3",
        vocab_size=151_936,
        hidden_size=1024,
        intermediate_size=3072,
        num_layers=28,
        num_heads=16,
        num_kv_heads=8,
        head_dim=128,
        tied=True,
    )
    config, dtype, nowhere = config_of(shape), torch.bfloat16, torch.device("meta")
    decoder = Decoder(config, dtype, nowhere)
    if decoder_of is FusedDecoder:
        decoder = FusedDecoder(decoder)
    cache = KVCache(
        num_layers=28, num_blocks=2, block_size=16, num_kv_heads=8, head_dim=128, dtype=dtype, device=nowhere
    )
    layout = PagedLayout(
        cache,
        attention=TritonAttention(gpu_with(132)),
        write_kv=triton_cache.write_kv,
        slot_mapping=slot_mapping,
        scale=1.0,
    )
    launches = Launches()
    launches.replace_kernels(
        monkeypatch,
        {
            triton_cache: ["write_kernel"],
            decode: ["decode_kernel"],
            decode_split: ["decode_part_kernel", "merge_kernel"],
            layer_kernels: ["add_norm_kernel", "rotate_kernel", "silu_times_kernel"],
        },
    )
    counts: list[Counter[str]] = []

    def count(run: Callable[[], None]) -> Replay:
        launches.names.clear()
        with launches:
            run()
        counts.append(Counter(launches.names))
        return run

    DecodeGraphs(decoder, layout, max_num_seqs=num_seqs, max_model_len=4096, capture=count)
    return counts[0]  # the largest step is recorded first


@pytest.mark.parametrize("num_seqs", [1, 256])
def test_a_decode_step_has_at_most_400_launches(num_seqs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 28 layers. Plain layers have more than twice as many."""
    counts = launches_of_a_step(FusedDecoder, num_seqs, monkeypatch)
    assert counts["mm"] == 4 * 28, counts
    assert counts["rotate_kernel"] == counts["silu_times_kernel"] == 28, counts
    assert counts.total() <= 400, counts
    assert launches_of_a_step(Decoder, num_seqs, monkeypatch).total() > 2 * counts.total()
