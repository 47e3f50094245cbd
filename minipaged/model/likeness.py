"""Checks that a decoder computes what `minipaged/model/` describes. Equal sizes are not enough.

A fast decoder does one fixed computation. The given decoder may do a different one, because its parts were
exchanged, or because the code in `model/` was edited. Such a decoder must run as it is, without a fast one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from minipaged.errors import ConfigError
from minipaged.model.config import ModelConfig, RopeConfig
from minipaged.model.decoder import AttendFn, Decoder

Compute = Callable[[Decoder, Tensor, Tensor, AttendFn], Tensor]
"""(plain decoder, token ids [T], positions [T], attention) -> logits [T, vocab_size], by the fast code."""


def other_parts(decoder: Decoder) -> str | None:
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
    """The names that only one of the two mappings has, or that have different values in them."""

    def differs(name: str) -> bool:
        if name not in found or name not in expected:
            return True
        mine, theirs = found[name], expected[name]
        return type(mine) is not type(theirs) or isinstance(mine, Tensor) or mine != theirs

    return sorted(filter(differs, found.keys() | expected.keys()))


def other_results(
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    compute: Compute,
    *,
    size: int,
    tolerance: float,
) -> str | None:
    """Whether the code in `model/` and a fast decoder give different results for a small model.

    Args:
        config: the configuration of the real model. The small model has the same features.
        dtype, device: the dtype and device of the small model.
        compute: the fast code.
        size: the head dimension of the small model. Its other sizes are this number or twice this number.
        tolerance: how far the results may be apart: the norm of their difference, as a share of the norm of
            the expected result.

    Returns:
        What differs, in words; `None` if nothing does.
    """
    small = replace(
        config,
        hidden_size=size,
        intermediate_size=2 * size,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_dim=size,
        vocab_size=size,
        rope=RopeConfig(),
    )
    try:
        plain = _small_decoder(small, dtype, device)
        ids, positions = (torch.tensor(each, device=device) for each in ([3, 1, 4], [0, 1, 9]))
        expected = plain.logits(plain(ids, positions, _attend))  # [3, vocab]
        found = compute(plain, ids, positions, _attend)  # [3, vocab]
        distance = float((found - expected).norm() / expected.norm())
    except ConfigError:
        raise
    except Exception as error:  # any kind: edited code may not run, and a compiler may fail
        return f"a small model of its kind cannot be computed: {type(error).__name__}: {error}"
    if distance <= tolerance:
        return None
    return f"the code in minipaged/model computes something else: results are {distance:.1%} apart"


def _small_decoder(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Decoder:
    """A small decoder with weights so large that every operation affects the result."""
    decoder = Decoder(config, dtype, device)
    generator = torch.Generator("cpu").manual_seed(0)
    for parameter in decoder.parameters():
        scale = parameter.shape[1] ** -0.5 if parameter.dim() == 2 else 1.0
        noise = torch.randn(parameter.shape, generator=generator, device="cpu")
        parameter.data.copy_(noise * 2 * scale)
    return decoder


def _attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """A stand-in for attention that depends on query, key and value: [T, Hq, D]."""
    return query * 0.5 + torch.tanh(key) * value * (layer + 1)
