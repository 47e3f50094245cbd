"""How long a step takes, estimated with a roofline instead of running the model.

A step reads all weights once and the KV cache of each of its sequences once, and does the arithmetic of its
tokens. Each part takes as long as its memory accesses or its arithmetic, whichever takes longer. This is the
roofline model (Williams et al., Communications of the ACM, 2009). The parts run one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from minipaged.loading.known_models import ModelShape, dtype_bytes
from minipaged.sim.device import Device


@dataclass(frozen=True)
class StepLoad:
    """What one step computes, in numbers.

    Attributes:
        num_seqs: sequences in the step.
        num_tokens: tokens that go through the layers.
        num_sampled: tokens that the step samples.
        num_kv_tokens: tokens whose keys and values attention reads: each sequence's tokens, counted once.
        num_pairs: pairs of a query and a key, summed over the sequences.
        num_copied_tokens: tokens whose keys and values are copied within the device's memory.
        num_swapped_tokens: tokens whose keys and values cross to the CPU's memory or back.
    """

    num_seqs: int
    num_tokens: int
    num_sampled: int
    num_kv_tokens: int
    num_pairs: int
    num_copied_tokens: int = 0
    num_swapped_tokens: int = 0


class StepTime(Protocol):
    """Returns the seconds of a step: a `Roofline`, a constant, a fit, or a clock around a real engine."""

    def __call__(self, load: StepLoad) -> float: ...


@dataclass(frozen=True)
class Roofline:
    """Seconds of a step of one model on one or more devices.

    Several devices share each layer (tensor parallelism): each holds its part of the weights and of the KV
    heads. After attention and after the feed-forward part, the devices add up their results. In a ring, each
    device sends and receives 2 (N − 1) / N of these numbers.

    Attributes:
        weight_bytes: bytes of all weights.
        flops_per_token: operations of the linear layers for one token: 2 for each weight.
        kv_bytes_per_token: bytes of one token's keys and values, in all layers.
        flops_per_pair: operations of attention for one query and one key, in all layers: 2 for the score and
            2 for the value, for each number of each head.
        exchanged_bytes_per_token: bytes that all devices add up for one token, in all layers.
        device: one of the devices.
        num_devices: how many devices there are.
        overhead: seconds that each step takes in addition. No datasheet gives it.
    """

    weight_bytes: float
    flops_per_token: float
    kv_bytes_per_token: float
    flops_per_pair: float
    exchanged_bytes_per_token: float
    device: Device
    num_devices: int = 1
    overhead: float = 0.0

    @classmethod
    def of(
        cls,
        model: ModelShape,
        num_parameters: int,
        device: Device,
        *,
        num_devices: int = 1,
        overhead: float = 0.0,
    ) -> Roofline:
        """The roofline of a model in its published dtype.

        Args:
            model: its shape.
            num_parameters: its weights. All weights count, including the embeddings. That is 1 to 2 % too
                much.
            device: one of the devices.
            num_devices: how many devices share each layer.
            overhead: seconds that each step takes in addition.
        """
        size = dtype_bytes(model.dtype)
        return cls(
            weight_bytes=num_parameters * size,
            flops_per_token=2 * num_parameters,
            kv_bytes_per_token=model.kv_shape().bytes_per_token,
            flops_per_pair=4 * model.num_layers * model.num_heads * model.head_dim,
            exchanged_bytes_per_token=2 * model.num_layers * model.hidden_size * size,
            device=device,
            num_devices=num_devices,
            overhead=overhead,
        )

    def __call__(self, load: StepLoad) -> float:
        bandwidth = self.device.memory_bytes_per_second * self.num_devices
        flops = self.device.flops * self.num_devices
        linear = max(self.weight_bytes / bandwidth, load.num_tokens * self.flops_per_token / flops)
        attention = max(
            load.num_kv_tokens * self.kv_bytes_per_token / bandwidth,
            load.num_pairs * self.flops_per_pair / flops,
        )
        copies = 2 * load.num_copied_tokens * self.kv_bytes_per_token / bandwidth  # read and written
        swaps = (
            load.num_swapped_tokens
            * self.kv_bytes_per_token
            / (self.device.host_bytes_per_second * self.num_devices)
        )
        return linear + attention + copies + swaps + self._exchange(load.num_tokens) + self.overhead

    def _exchange(self, num_tokens: int) -> float:
        if self.num_devices == 1:
            return 0.0
        sent = 2 * (self.num_devices - 1) / self.num_devices * num_tokens * self.exchanged_bytes_per_token
        return sent / self.device.link_bytes_per_second
