"""The parts of `minipaged bench gpu` about the attention kernels."""

from __future__ import annotations

import torch

from minipaged.attention.backend import select_attention
from minipaged.bench.gpu_bandwidth import Bandwidth
from minipaged.bench.gpu_correctness import Correctness
from minipaged.bench.gpu_part import Parts
from minipaged.bench.gpu_prefill import Prefill
from minipaged.bench.gpu_sizes import FULL, REHEARSAL


def make_parts(device: torch.device, *, rehearse: bool) -> Parts:
    """The parts to run, by name; see `gpu_groups`."""
    sizes = REHEARSAL if rehearse else FULL
    attention = select_attention("triton", device)
    correctness = Correctness(attention, device, sizes)
    bandwidth = Bandwidth(attention, device, sizes)
    return {
        "correctness": correctness.kernels,
        "far blocks": correctness.far_blocks,
        "copy bandwidth": bandwidth.copy,
        "decode": bandwidth.decode,
        "price of paging": bandwidth.paging,
        "block sizes": bandwidth.block_sizes,
        "prefill": Prefill(attention, device, sizes).measure,
    }
