"""What an engine on a CUDA device computes with: the plain decoder, or one with fused kernels in its place.

The plain decoder is not changed, and both have the same weights.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from minipaged.errors import ConfigError
from minipaged.model.decoder import AttendFn, Decoder
from minipaged.model.likeness import other_parts, other_results
from minipaged.triton_kernels.fused_decoder import FusedDecoder

logger = logging.getLogger(__name__)

SMALL = 32
"""A head of the small model that is computed both ways."""
TOLERANCES = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""How far results may be from PyTorch's, as in `model/likeness.py`. The kernels round where PyTorch does, but
add up in another order."""


def fused_decoder(decoder: Decoder, *, required: bool) -> Decoder:
    """A decoder with fused kernels. If they do not compute it, the decoder itself, with a line in the log.

    This module imports Triton: call `prepare_triton` first.

    Args:
        decoder: a plain one.
        required: refuse what the kernels do not compute.

    Raises:
        ConfigError: it is required, and the kernels do not compute it.
    """
    reason = why_not_fused(decoder)
    if reason is None:
        return FusedDecoder(decoder)
    if required:
        raise ConfigError(
            f"compiled_layers=True, but the fused kernels do not compute this model: {reason}. Leave it out, "
            "or set compiled_layers=False"
        )
    logger.info("The layers run in PyTorch, since the fused kernels do not compute them: %s", reason)
    return decoder


@torch.inference_mode()
def why_not_fused(decoder: Decoder) -> str | None:
    """Why the kernels do not compute this decoder, in words; `None` if they do."""
    dtype = decoder.dtype
    if dtype not in TOLERANCES:
        return f"its weights are in {str(dtype).removeprefix('torch.')}"
    return other_parts(decoder) or other_results(
        decoder.config, dtype, decoder.device, _compute, size=SMALL, tolerance=TOLERANCES[dtype]
    )


def _compute(plain: Decoder, token_ids: Tensor, positions: Tensor, attend: AttendFn) -> Tensor:
    fused = FusedDecoder(plain)
    return fused.logits(fused(token_ids, positions, attend))
