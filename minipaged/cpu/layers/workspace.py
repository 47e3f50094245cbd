"""LayerWorkspace: memory for the intermediate results of compiled layers."""

from __future__ import annotations

import threading

import torch

from minipaged.model.config import ModelConfig


class LayerWorkspace:
    """Memory that one layer at a time uses, in one step.

    Compiled code uses its addresses, so the object has to live until that code has run.

    Args:
        config: the model's shape.
        num_tokens: T, the most tokens that go through a half of a layer together.

    Attributes:
        x_address: address of a float32 array `[T, N]`, where N is the larger of the hidden size and the size
            of attention's output.
        gated_address: address of a float32 array `[T, intermediate]`.
    """

    def __init__(self, config: ModelConfig, num_tokens: int) -> None:
        width = max(config.hidden_size, config.num_heads * config.head_dim)
        # PyTorch's default device and dtype may differ.
        self._x, self._gated = (
            torch.empty(num_tokens, size, dtype=torch.float32, device="cpu")  # [T, size]
            for size in (width, config.intermediate_size)
        )
        self.x_address = self._x.data_ptr()
        self.gated_address = self._gated.data_ptr()


class WorkspaceOfThread(threading.local):
    """One `LayerWorkspace` for each Python thread.

    Several engines may use one decoder at the same time. The workspace is freed when its thread ends, so ask
    for it again in each call.

    Args:
        config, num_tokens: as in `LayerWorkspace`.
    """

    def __init__(self, config: ModelConfig, num_tokens: int) -> None:
        # Python calls this in every thread that uses the object.
        self.workspace = LayerWorkspace(config, num_tokens)
