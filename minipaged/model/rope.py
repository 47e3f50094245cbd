"""Rotary position embedding (Su et al., "RoFormer", arXiv 2104.09864).

The D numbers of a head form D / 2 pairs. Pair i is rotated by the angle position × frequency[i].
The dot product of a rotated query and a rotated key then depends only on the distance of their positions.
Because a key's rotation depends only on its own position, the key can be cached after the rotation.

Hugging Face pairs element i with element i + D / 2. The paper pairs element 2i with 2i + 1. The two
differ only by a permutation of the projection's rows; see `minipaged.loading.gguf_source`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from minipaged.model.config import RopeConfig


def frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """The angle per position for each pair of a head.

    Returns:
        [head_dim / 2] float32 on the CPU, in radians per position: from 1 down to about 1 / theta,
        then scaled as `rope.scaling` says.
    """
    # The device is given, because the user may have changed PyTorch's default device.
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim  # [D / 2]
    base = 1.0 / rope.theta**exponents  # [D / 2]
    if rope.scaling == "linear":
        return base / rope.factor
    if rope.scaling == "divisors":
        return base / torch.tensor(rope.divisors, dtype=torch.float32, device="cpu")
    if rope.scaling == "llama3":
        return _llama3(base, rope)
    return base


def _llama3(base: Tensor, rope: RopeConfig) -> Tensor:
    """Llama 3.1's scaling: [D / 2] -> [D / 2].

    Pairs that rotate often within the original context encode local order, and their frequencies stay. Pairs
    that rotate fewer than `low_freq_factor` times have their frequencies divided by `factor`. The frequencies
    in between are blended.
    """
    turns = rope.original_max_position_embeddings * base / (2 * math.pi)  # [D / 2]
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)  # [D / 2]
    blend = blend.clamp(0.0, 1.0)
    return (1 - blend) * base / rope.factor + blend * base


class RotaryEmbedding(nn.Module):
    """The cosines and sines of a step's positions, shared by all layers.

    They are computed in each step, and not looked up in a table. T × D / 2 cosines cost almost nothing
    compared with the matrix products, and a table would have a length that positions could exceed.
    """

    frequencies: Tensor

    def __init__(self, rope: RopeConfig, head_dim: int, device: torch.device) -> None:
        super().__init__()
        # A buffer moves with the module. It is float32 for weights of any dtype: in bfloat16, position
        # 100,000 times a frequency would have no fractional bits.
        self.register_buffer("frequencies", frequencies(rope, head_dim).to(device), persistent=False)

    def forward(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines of each position's angles.

        Args:
            positions: [T] int64.
            dtype: the dtype of the results. The angles themselves are float32.

        Returns:
            cos and sin, each [T, 1, D / 2], to be broadcast over heads.
        """
        angles = positions[:, None].to(torch.float32) * self.frequencies  # [T, D / 2]
        return angles.cos().to(dtype)[:, None, :], angles.sin().to(dtype)[:, None, :]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates each pair of each head.

    Args:
        x: [T, H, D], queries or keys.
        cos, sin: [T, 1, D / 2].

    Returns:
        [T, H, D], contiguous.
    """
    first, second = x.chunk(2, dim=-1)  # [T, H, D / 2] each
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
