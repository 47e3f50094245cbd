"""The speed of a workload on this machine if only work with the weights took time: an upper bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minipaged.model.config import ModelConfig
from minipaged.sim.workload import Workload

Shape = tuple[int, int]
"""Rows and columns of a weight matrix."""


@dataclass(frozen=True)
class Matrices:
    """The matrices of a model's linear layers.

    Attributes:
        layer: shapes of one decoder layer's matrices, fused as an engine would fuse them.
        num_layers: number of decoder layers.
        lm_head: shape of the matrix that computes the logits.
    """

    layer: tuple[Shape, ...]
    num_layers: int
    lm_head: Shape

    @classmethod
    def of(cls, model: ModelConfig) -> Matrices:
        q_size, kv_size = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
        hidden, intermediate = model.hidden_size, model.intermediate_size
        layer = (
            (q_size + 2 * kv_size, hidden),
            (hidden, q_size),
            (2 * intermediate, hidden),
            (hidden, intermediate),
        )
        return cls(layer, model.num_layers, (model.vocab_size, hidden))

    @property
    def num_weights(self) -> int:
        """Numbers in all matrices. Computing one token reads all of them."""
        in_layers = self.num_layers * sum(rows * columns for rows, columns in self.layer)
        return in_layers + self.lm_head[0] * self.lm_head[1]


@dataclass(frozen=True)
class MachineRates:
    """The measured speed of this machine; see `machine_rates.py`.

    Attributes:
        read_bytes_per_second: rate at which all threads together read from memory.
        num_rows: numbers of tokens for which the products were timed, ascending.
        layers_seconds: for each entry of `num_rows`, the time of all layers' products.
        lm_head_seconds: for each entry of `num_rows`, the time of the logits' product.
    """

    read_bytes_per_second: float
    num_rows: tuple[int, ...]
    layers_seconds: tuple[float, ...]
    lm_head_seconds: tuple[float, ...]

    def layers(self, num_rows: int) -> float:
        """Seconds of all layers' products for `num_rows` tokens in one step."""
        return _between(num_rows, self.num_rows, self.layers_seconds)

    def lm_head(self, num_rows: int) -> float:
        """Seconds of the logits' product for `num_rows` tokens."""
        return _between(num_rows, self.num_rows, self.lm_head_seconds)


def most_tokens_per_second(
    workload: Workload, matrices: Matrices, dtype_bytes: int, rates: MachineRates
) -> float:
    """An upper bound on the output tokens per second.

    With a single request, only the time of reading all weights once per output token counts. With several
    requests, only the time of the linear layers counts: first for all prompts at once, with a shared prefix
    computed once, then step by step for the requests that are still running.
    """
    if len(workload.requests) == 1:
        return rates.read_bytes_per_second / (matrices.num_weights * dtype_bytes)
    repeated = workload.num_prefix_tokens * (len(workload.requests) - workload.num_prefixes)
    seconds = rates.layers(workload.num_prompt_tokens - repeated) + rates.lm_head(len(workload.requests))
    for step in range(1, max(each.max_tokens for each in workload.requests)):
        num_running = sum(each.max_tokens > step for each in workload.requests)
        seconds += rates.layers(num_running) + rates.lm_head(num_running)
    return workload.num_output_tokens / seconds


def _between(num_rows: int, measured: Sequence[int], seconds: Sequence[float]) -> float:
    """Interpolate linearly between the measured numbers of rows. Beyond the last, scale in proportion."""
    if num_rows > measured[-1]:
        return seconds[-1] * num_rows / measured[-1]
    return float(np.interp(num_rows, measured, seconds))
