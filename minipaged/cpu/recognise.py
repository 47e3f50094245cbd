"""Find out whether the compiled loops can compute a given decoder. See `model/likeness.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from minipaged.cpu.decoder import CompiledDecoder
from minipaged.cpu.products.tile import PANEL
from minipaged.model.decoder import AttendFn, Decoder
from minipaged.model.likeness import other_parts, other_results

TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
"""For each dtype of the loops, how far their results may be from PyTorch's. This distance is the norm of the
difference, divided by the norm of the result. A different order of summation causes less than a tenth of the
allowed distance."""


@torch.inference_mode()
def why_not_compiled(decoder: Decoder) -> str | None:
    """The reason why the loops cannot compute this decoder, in words; `None` if they can.

    Args:
        decoder: any decoder, plain or compiled.
    """
    reason = _other_sizes(decoder)
    if reason is None and not isinstance(decoder, CompiledDecoder):
        reason = other_parts(decoder)
    return reason or other_results(
        decoder.config,
        decoder.dtype,
        torch.device("cpu"),
        _compute,
        size=PANEL,
        tolerance=TOLERANCES[decoder.dtype],
    )


def _compute(plain: Decoder, token_ids: Tensor, positions: Tensor, attend: AttendFn) -> Tensor:
    """Compute logits as a recorded step does (see `recorded_decode.py`), without calling `forward`."""
    compiled = CompiledDecoder(plain, lambda linear: linear, takes_over=False)
    hidden, cos, sin = compiled.enter(token_ids, positions)
    for i, layer in enumerate(compiled.layers):
        q, k, v = layer.before_attention(hidden, cos, sin)
        hidden = layer.after_attention(hidden, attend(i, q, k, v))
    return compiled.logits(compiled.norm(hidden))


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
