"""Matrix products with weights in *panels*, the order in which the innermost loop reads them.

A matrix `[out, in]` is stored as `[out / 32, in, 32]`. In each of these panels, the weights of 32 outputs lie
side by side for each input. So a processor multiplies all 32 by that input at once, and reads the whole panel
in one stream. A panel is multiplied by many rows of x before the next panel is read, so a step of decodes
reads each weight from memory once.

A row of the result does not depend on the other rows of x, not even in its last bit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from minipaged.cpu.compiler.threads import run_on_threads, threads_for
from minipaged.cpu.products.panel_linear_loops import ProductArguments, product_bfloat16, product_float32
from minipaged.cpu.products.tile import PANEL

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""x Wᵀ + b: (x [T, in], weight [out, in], in rows or in panels, bias [out] or None) -> [T, out]."""

READING, MULTIPLYING = 4e-4, 2e-5
"""About how many microseconds it takes to read a weight from memory, and to multiply by it once."""


class PanelLinear(nn.Module):
    """A `Linear` whose weight is in panels.

    Args:
        panels: `[out / PANEL, in, PANEL]`.
        bias: `[out]`.
    """

    def __init__(self, panels: nn.Parameter, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.weight = panels
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """[T, in] -> [T, out]."""
        return panel_linear(x, self.weight, self.bias)


class PanelEmbedding(nn.Module):
    """An `Embedding` that shares the panels of the logits' matrix, `[V / PANEL, hidden, PANEL]`."""

    def __init__(self, panels: nn.Parameter) -> None:
        super().__init__()
        self.weight = panels

    def forward(self, token_ids: Tensor) -> Tensor:
        """[T] int64 -> [T, hidden]."""
        return self.weight[token_ids // PANEL, :, token_ids % PANEL]


def fits_panels(weight: Tensor) -> bool:
    """Whether a matrix can be stored in panels.

    It must be in float32 or bfloat16, on the CPU, and fill whole panels.
    """
    fits = weight.dim() == 2 and len(weight) % PANEL == 0 and weight.shape[1] > 0
    return fits and weight.dtype in (torch.float32, torch.bfloat16) and weight.is_cpu


def in_panels(weight: Tensor) -> Tensor:
    """A matrix `[out, in]` in panels: `[out / PANEL, in, PANEL]`."""
    return weight.unflatten(0, (-1, PANEL)).transpose(1, 2).contiguous()


def in_rows(panels: Tensor) -> Tensor:
    """The inverse of `in_panels`: a copy of the matrix, `[out, in]`."""
    return panels.transpose(1, 2).flatten(0, 1)


def product_threads(num_weights: int, num_rows: int) -> int:
    """How many threads to use for products with `num_weights` weights in all."""
    return threads_for(num_weights * (READING + num_rows * MULTIPLYING))


def panel_linear(x: Tensor, panels: Tensor, bias: Tensor | None) -> Tensor:
    """Compute `F.linear` with a matrix in panels.

    Args:
        x: `[T, in]`.
        panels: `[out / PANEL, in, PANEL]`, in the dtype of x.
        bias: `[out]`.

    Returns:
        `[T, out]`, in the dtype of x. All sums are computed in float32.
    """
    num_panels, num_columns, panel = panels.shape
    num_rows, width = x.shape
    known = panels.dtype in (torch.float32, torch.bfloat16) and panel == PANEL and panels.is_contiguous()
    if width != num_columns or x.dtype != panels.dtype or not known:
        raise ValueError(
            f"x is {x.dtype} {list(x.shape)}, the panels are {panels.dtype} {list(panels.shape)}"
        )
    rows = x if x.dtype == torch.float32 else x.float()  # [T, in]
    if rows.stride(1) != 1 or rows.stride(0) < num_columns:
        rows = rows.contiguous()
    result = torch.empty(num_rows, num_panels * PANEL, dtype=torch.float32, device=x.device)  # [T, out]
    num_threads = product_threads(panels.numel(), num_rows)
    arguments = ProductArguments(
        next_part=0,
        num_threads=num_threads,
        x=rows.data_ptr(),
        x_stride=max(rows.stride(0), num_columns),  # PyTorch may give a single row any stride
        num_rows=num_rows,
        num_columns=num_columns,
        weights=panels.data_ptr(),
        num_panels=num_panels,
        result=result.data_ptr(),
    )
    run_on_threads(
        product_float32 if panels.dtype == torch.float32 else product_bfloat16, arguments, num_threads
    )
    if bias is not None:
        result += bias
    return result if x.dtype == torch.float32 else result.to(x.dtype)
