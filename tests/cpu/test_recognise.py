"""The loops compute one kind of decoder. Decoders with replaced parts or edited code are recognised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MethodType

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minipaged.cpu.recognise import why_not_compiled
from minipaged.cpu.replace import compiled_decoder
from minipaged.loading.random_weights import fill_random
from minipaged.model import decoder as decoder_module
from minipaged.model import layer as layer_module
from minipaged.model.config import ModelConfig
from minipaged.model.decoder import AttendFn, Decoder
from minipaged.model.layer import Embedding, Layer, Linear, Mlp, RMSNorm, SelfAttention
from minipaged.model.rope import RotaryEmbedding
from tests.oracle import FAMILIES, Family, config_of, make_config

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16]


def make(
    config: ModelConfig | None = None, dtype: torch.dtype = torch.float32, of: type[Decoder] = Decoder
) -> Decoder:
    decoder = of(config or config_of(make_config("qwen3", num_layers=2)), dtype, CPU)
    fill_random(decoder.weight_views(), seed=0)
    return decoder


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_read_in_the_model_folder_is_compiled(
    family: Family, tied: bool, bias: bool, dtype: torch.dtype
) -> None:
    config = config_of(make_config(family, tied=tied))
    decoder = make(replace(config, qkv_bias=config.qkv_bias or bias, o_bias=bias), dtype)
    assert why_not_compiled(decoder) is None
    assert why_not_compiled(decoder.eval()) is None


@pytest.mark.parametrize("rms_norm_eps", [0.0, 1e-6, 0.1])
def test_norms_of_any_epsilon(rms_norm_eps: float) -> None:
    config = config_of(make_config("qwen3"))
    assert why_not_compiled(make(replace(config, rms_norm_eps=rms_norm_eps))) is None


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"hidden_size": 84}, "hidden_size (84) is not a multiple of 32"),
        ({"intermediate_size": 80}, "intermediate_size (80)"),
        ({"head_dim": 6, "num_heads": 1, "num_kv_heads": 1}, "queries, keys and values (18)"),
    ],
)
def test_sizes_that_do_not_fill_panels(shape: dict[str, int], message: str) -> None:
    decoder = make(config_of(make_config("llama", **shape)))  # pyright: ignore[reportArgumentType]
    assert message in str(why_not_compiled(decoder))


def test_another_dtype() -> None:
    assert "in float16" in str(why_not_compiled(make(dtype=torch.float16)))


# Replaced parts: a reader or a program may do each of these to a loaded model.


class ReluMlp(Mlp):
    """Another activation."""

    def forward(self, hidden: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(hidden).chunk(2, dim=-1)
        return self.down_proj(F.relu(gate) * up)


class BiasedNorm(RMSNorm):
    """A norm with a bias."""

    def __init__(self, norm: RMSNorm) -> None:
        super().__init__(len(norm.weight), norm.eps, dtype=norm.weight.dtype, device=norm.weight.device)
        self.weight = norm.weight
        self.bias = nn.Parameter(torch.ones_like(norm.weight), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.bias


class Adapted(nn.Module):
    """An unknown projection: a known one with a low-rank adapter."""

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        self.weight, self.bias, self.out_features = linear.weight, linear.bias, linear.out_features
        self.down = nn.Parameter(torch.ones(1, linear.weight.shape[1]), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias) + F.linear(x, self.down)


class ScaledDecoder(Decoder):
    """Embeddings that are scaled, as Gemma's are."""

    def enter(self, token_ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden, cos, sin = super().enter(token_ids, positions)
        return hidden * self.config.hidden_size**0.5, cos, sin


def another_activation(decoder: Decoder) -> None:
    mlp = decoder.layers[1].mlp
    other = ReluMlp(decoder.config, decoder.dtype, CPU)
    other.gate_up_proj, other.down_proj = mlp.gate_up_proj, mlp.down_proj
    decoder.layers[1].mlp = other


def a_norm_with_a_bias(decoder: Decoder) -> None:
    decoder.layers[0].input_layernorm = BiasedNorm(decoder.layers[0].input_layernorm)


def a_last_norm_with_a_bias(decoder: Decoder) -> None:
    decoder.norm = BiasedNorm(decoder.norm)


def another_epsilon(decoder: Decoder) -> None:
    decoder.layers[1].post_attention_layernorm.eps = 0.5


def an_unknown_projection(decoder: Decoder) -> None:
    decoder.layers[0].mlp.down_proj = Adapted(decoder.layers[0].mlp.down_proj)  # pyright: ignore


def a_projection_with_a_bias(decoder: Decoder) -> None:
    linear = decoder.layers[1].mlp.down_proj
    decoder.layers[1].mlp.down_proj = Linear(linear.weight, nn.Parameter(torch.ones(linear.out_features)))


def a_projection_of_another_size(decoder: Decoder) -> None:
    weight = decoder.layers[0].mlp.gate_up_proj.weight
    decoder.layers[0].mlp.gate_up_proj = Linear(nn.Parameter(weight[:64], requires_grad=False))


def no_norm_of_queries(decoder: Decoder) -> None:
    decoder.layers[0].self_attn.q_norm = None


def a_method_of_its_own(decoder: Decoder) -> None:
    decoder.layers[1].after_attention = lambda hidden, attended: hidden  # pyright: ignore


def a_bound_method_of_its_own(decoder: Decoder) -> None:
    mlp = decoder.layers[0].mlp
    mlp.forward = MethodType(lambda self, hidden: hidden, mlp)  # pyright: ignore


def a_hook(decoder: Decoder) -> None:
    decoder.layers[0].mlp.register_forward_hook(lambda module, args, result: None)


def a_layer_less(decoder: Decoder) -> None:
    del decoder.layers[1]


def a_part_more(decoder: Decoder) -> None:
    decoder.layers[0].mlp.extra = nn.Identity()


def other_embeddings(decoder: Decoder) -> None:
    class Doubled(Embedding):
        def forward(self, token_ids: Tensor) -> Tensor:
            return super().forward(token_ids) * 2

    other = Doubled(*decoder.embed_tokens.weight.shape, dtype=decoder.dtype, device=CPU)
    decoder.embed_tokens = other


@pytest.mark.parametrize(
    "exchange",
    [
        another_activation,
        a_norm_with_a_bias,
        a_last_norm_with_a_bias,
        another_epsilon,
        an_unknown_projection,
        a_projection_with_a_bias,
        a_projection_of_another_size,
        no_norm_of_queries,
        a_method_of_its_own,
        a_bound_method_of_its_own,
        a_hook,
        a_layer_less,
        a_part_more,
        other_embeddings,
    ],
)
def test_parts_that_were_exchanged(exchange: Callable[[Decoder], None]) -> None:
    decoder = make()
    exchange(decoder)
    assert why_not_compiled(decoder) is not None
    assert compiled_decoder(decoder, required=False, takes_over=False) is decoder


def test_a_decoder_of_another_class() -> None:
    assert "ScaledDecoder" in str(why_not_compiled(make(of=ScaledDecoder)))


# Edited code: a reader's edit of the files in `model/` has the same effect as these patches.


def relu_forward(self: Mlp, hidden: Tensor) -> Tensor:
    gate, up = self.gate_up_proj(hidden).chunk(2, dim=-1)
    return self.down_proj(F.relu(gate).mul_(up))


def shifted_norm(self: RMSNorm, x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], self.weight, self.eps) + 0.1


def parallel_halves(self: Layer, hidden: Tensor, attended: Tensor) -> Tensor:
    attended = self.self_attn.o_proj(attended.flatten(-2))
    return hidden + attended + self.mlp(self.post_attention_layernorm(hidden))


def skipping_forward(self: Decoder, token_ids: Tensor, positions: Tensor, attend: AttendFn) -> Tensor:
    """Only every second layer runs."""
    hidden, cos, sin = self.enter(token_ids, positions)
    for i, layer in enumerate(self.layers[::2]):
        q, k, v = layer.before_attention(hidden, cos, sin)
        hidden = layer.after_attention(hidden, attend(i, q, k, v))
    return self.norm(hidden)


def broken(*_: object) -> Tensor:
    raise RuntimeError("a slip of the pen")


EDITS: list[tuple[object, str, object]] = [
    (Mlp, "forward", relu_forward),
    (F, "silu", F.gelu),
    (RMSNorm, "forward", shifted_norm),
    (Layer, "after_attention", parallel_halves),
    (Layer, "before_attention", broken),
    (SelfAttention, "heads", broken),
    (Linear, "forward", lambda self, x: F.linear(x, self.weight)),
    (Embedding, "forward", lambda self, ids: self.weight[ids] * 2),
    (Decoder, "forward", skipping_forward),
    (layer_module, "rotate", lambda x, cos, sin: x),
    (layer_module, "rotate", lambda x, cos, sin: torch.cat((x[..., 1::2], x[..., ::2]), dim=-1)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("where", "name", "edit"), EDITS)
def test_code_that_was_edited(
    where: object, name: str, edit: object, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = make(config_of(make_config("qwen2", tied=True)), dtype)  # its projections have biases
    compiled = compiled_decoder(decoder, required=True, takes_over=False)
    monkeypatch.setattr(where, name, edit)
    reason = why_not_compiled(decoder)
    assert reason is not None
    assert "apart" in reason or "a slip of the pen" in reason
    assert why_not_compiled(compiled) is not None, "also where it was compiled before"
    assert compiled_decoder(decoder, required=False, takes_over=False) is decoder
    assert type(compiled_decoder(compiled, required=False, takes_over=False)) is Decoder
    monkeypatch.undo()
    assert why_not_compiled(decoder) is None


def test_code_that_is_not_compiled_may_be_edited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled decoders use the plain code for angles, `enter` and `logits`, so an edit affects them."""

    def other_angles(self: RotaryEmbedding, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        angles = 2.0 * positions[:, None] * self.frequencies
        return angles.cos().to(dtype)[:, None, :], angles.sin().to(dtype)[:, None, :]

    monkeypatch.setattr(RotaryEmbedding, "forward", other_angles)
    monkeypatch.setattr(Decoder, "logits", lambda self, hidden: self.lm_head(hidden).float() / 2)
    assert decoder_module.RotaryEmbedding is RotaryEmbedding
    assert why_not_compiled(make()) is None
