"""LayerWorkspace: what compiled layers write between their operations."""

from __future__ import annotations

import threading

import torch

from minipaged.model.config import ModelConfig


class LayerWorkspace:
    """Memory for one layer at a time, of one step. Compiled code is given its addresses, so it has to live as
    long as they are in use.

    Args:
        config: the model's shape.
        num_tokens: T, most tokens that go through a half of a layer together.

    Attributes:
        x_address: of float32 `[T, hidden or what attention gives, the larger of the two]`.
        gated_address: of float32 `[T, intermediate]`.
    """

    def __init__(self, config: ModelConfig, num_tokens: int) -> None:
        width = max(config.hidden_size, config.num_heads * config.head_dim)
        # PyTorch's defaults may be another device and another dtype.
        self._x, self._gated = (
            torch.empty(num_tokens, size, dtype=torch.float32, device="cpu")  # [T, size]
            for size in (width, config.intermediate_size)
        )
        self.x_address = self._x.data_ptr()
        self.gated_address = self._gated.data_ptr()


class WorkspaceOfThread(threading.local):
    """A `LayerWorkspace` of its own for each Python thread, since several engines may compute with one
    decoder at once. It is gone when the thread ends: take it anew for each call.

    Args:
        config, num_tokens: of the workspace.
    """

    def __init__(self, config: ModelConfig, num_tokens: int) -> None:
        # Python calls this in every thread that uses the object.
        self.workspace = LayerWorkspace(config, num_tokens)
