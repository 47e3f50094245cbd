"""Choose the decoder of an engine on a CUDA device: one with fused kernels if it works, else the plain one.

The plain decoder is not changed. Both decoders have the same weights.
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
"""The size of a head in the small model on which both decoders are compared (see `model/likeness.py`)."""
TOLERANCES = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""For each dtype, how far results may be from PyTorch's, measured as in `model/likeness.py`. The kernels
round where PyTorch does, but they add up sums in another order."""


def fused_decoder(decoder: Decoder, *, required: bool) -> Decoder:
    """Return a decoder with fused kernels. If they cannot compute it, log this and return the decoder itself.

    This module imports Triton: call `prepare_triton` first.

    Args:
        decoder: a plain one.
        required: raise an error if the kernels cannot compute the decoder.

    Raises:
        ConfigError: `required` is true, and the kernels cannot compute the decoder.
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
