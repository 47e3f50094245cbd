"""Whether a decoder is one that the compiled loops compute: what it *is*, not only its sizes.

The loops do one fixed computation. A decoder may do a different one, because its parts were replaced, or
because the code in `model/` was edited. Such a decoder has to run in PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from minipaged.cpu.decoder import CompiledDecoder
from minipaged.cpu.products.tile import PANEL
from minipaged.errors import ConfigError
from minipaged.model.config import ModelConfig, RopeConfig
from minipaged.model.decoder import Decoder

TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
"""The dtypes of the loops, and how far their results may be from PyTorch's: the norm of the difference,
divided by the norm of the result. A different order of summation gives less than a tenth of that."""


@torch.inference_mode()
def why_not_compiled(decoder: Decoder) -> str | None:
    """The reason why the loops cannot compute this decoder, in words; `None` if they can.

    Args:
        decoder: any decoder, plain or compiled.
    """
    reason = _other_sizes(decoder)
    if reason is None and not isinstance(decoder, CompiledDecoder):
        reason = _other_parts(decoder)
    return reason or _other_results(decoder.config, decoder.dtype)


def _other_sizes(decoder: Decoder) -> str | None:
    if decoder.dtype not in TOLERANCES:
        name = str(decoder.dtype).removeprefix("torch.")
        return f"its weights are in {name}, not in float32 or bfloat16"
    config = decoder.config
    num_heads = config.num_heads + 2 * config.num_kv_heads
    outputs = {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "the size of queries, keys and values": num_heads * config.head_dim,
    }
    for name, size in outputs.items():
        if size % PANEL:
            return f"{name} ({size}) is not a multiple of {PANEL}"
    return None


def _other_parts(decoder: Decoder) -> str | None:
    """How this decoder differs from the one that its configuration makes; `None` if it does not.

    It may have a part of another class, another parameter, or another attribute, such as a replaced
    method.
    """
    outline = Decoder(decoder.config, decoder.dtype, torch.device("meta"))
    theirs, ours = dict(decoder.named_modules()), dict(outline.named_modules())
    if theirs.keys() != ours.keys():
        return f"it has other parts: {', '.join(sorted(theirs.keys() ^ ours.keys()))}"
    for name, part in ours.items():
        found, label = theirs[name], name or "it"
        if type(found) is not type(part):
            return f"{label} is not the {type(part).__name__} of minipaged.model, but {type(found)}"
        for what in (_tensors, _attributes):
            changed = _changed(what(found), what(part))
            if changed:
                return f"{label} has another {', '.join(changed)}"
    return None


def _tensors(part: nn.Module) -> Mapping[str, object]:
    """A module's own parameters and buffers: their shapes and dtypes."""
    tensors = {**part._parameters, **part._buffers}
    return {name: None if each is None else (each.shape, each.dtype) for name, each in tensors.items()}


def _attributes(part: nn.Module) -> Mapping[str, object]:
    """A module's other attributes, hooks included. `training` does not matter here."""
    others = ("_parameters", "_buffers", "_modules", "training")
    return {name: value for name, value in vars(part).items() if name not in others}


def _changed(found: Mapping[str, object], expected: Mapping[str, object]) -> list[str]:
    """The names that only one of the two has, or whose values differ."""

    def differs(name: str) -> bool:
        if name not in found or name not in expected:
            return True
        mine, theirs = found[name], expected[name]
        return type(mine) is not type(theirs) or isinstance(mine, Tensor) or mine != theirs

    return sorted(filter(differs, found.keys() | expected.keys()))


def _other_results(config: ModelConfig, dtype: torch.dtype) -> str | None:
    """How the code in `model/` differs from the loops: both compute a small model of this kind."""
    small = replace(
        config,
        hidden_size=PANEL,
        intermediate_size=2 * PANEL,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_dim=PANEL,
        vocab_size=PANEL,
        rope=RopeConfig(),
    )
    try:
        plain = _small_decoder(small, dtype)
        compiled = CompiledDecoder(plain, lambda linear: linear, takes_over=False)
        ids, positions = (torch.tensor(each, device="cpu") for each in ([3, 1, 4], [0, 1, 9]))
        expected = plain.logits(plain(ids, positions, _attend))  # [3, vocab]
        # As in a recorded step, which does not call `forward`.
        hidden, cos, sin = compiled.enter(ids, positions)
        for i, layer in enumerate(compiled.layers):
            q, k, v = layer.before_attention(hidden, cos, sin)
            hidden = layer.after_attention(hidden, _attend(i, q, k, v))
        found = compiled.logits(compiled.norm(hidden))  # [3, vocab]
        distance = float((found - expected).norm() / expected.norm())
    except ConfigError:
        raise
    except Exception as error:  # any kind: edited code may not run, and a compiler may fail
        return f"a small model of its kind cannot be computed: {type(error).__name__}: {error}"
    if distance <= TOLERANCES[dtype]:
        return None
    return f"the code in minipaged/model computes something else: results are {distance:.1%} apart"


def _small_decoder(config: ModelConfig, dtype: torch.dtype) -> Decoder:
    """A small decoder with weights so large that every operation affects the result."""
    decoder = Decoder(config, dtype, torch.device("cpu"))
    generator = torch.Generator("cpu").manual_seed(0)
    for parameter in decoder.parameters():
        scale = parameter.shape[1] ** -0.5 if parameter.dim() == 2 else 1.0
        noise = torch.randn(parameter.shape, generator=generator, device="cpu")
        parameter.data.copy_(noise * 2 * scale)
    return decoder


def _attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """A stand-in for attention that depends on query, key and value: [T, Hq, D]."""
    return query * 0.5 + torch.tanh(key) * value * (layer + 1)
