"""Which matrix product is fastest on this CPU: measured when an engine is made.

`torch.nn.functional.linear` goes to MKL in float32 and to oneDNN in bfloat16. Which of the two
libraries is ahead depends on the processor and on the number of rows: on some, MKL takes twice as
long as oneDNN, and on others it is ahead. Our own product needs the weights in panels, so it is taken for all
numbers of rows or for none: processors that multiply matrices as such have libraries that no loop over
vectors can match. So a short trial decides, for a few numbers of rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minipaged.cpu.products.panel_linear import Product, fits_panels, in_panels, panel_linear
from minipaged.model.layer import Linear

TRIAL_ROWS = (1, 8, 32, 128)
"""A step's rows are few in decodes and many in prefills. Each trial decides for up to that many rows,
the last for all that are more."""

TRIAL_BYTES = 16 * 1024**2
"""Weights read in one trial: more than the caches that a core has for itself, so that they come from
memory, as they do in a step."""

ADVANTAGE = 1.2
"""How much faster than PyTorch's own choice another must be. Libraries differ in the last bits of a
sum: a machine should not choose one today and the other tomorrow because of a hair's breadth."""


@dataclass(frozen=True)
class ProductChoice:
    """The product to use, by the number of rows.

    Attributes:
        by_rows: (at most so many rows, product), ascending.
        beyond: for more rows than that.
    """

    by_rows: tuple[tuple[int, Product], ...] = ()
    beyond: Product = F.linear

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """A product like any other."""
        for most_rows, product in self.by_rows:
            if len(x) <= most_rows:
                return product(x, weight, bias)
        return self.beyond(x, weight, bias)


class ChosenLinear(nn.Module):
    """A `Linear` that another product computes, with the same weights.

    Args:
        linear: whose weights these are.
        product: for weights in rows.
    """

    def __init__(self, linear: Linear, product: Product) -> None:
        super().__init__()
        self.weight = linear.weight  # [out, in]
        self.bias = linear.bias  # [out]
        self.product = product

    def forward(self, x: Tensor) -> Tensor:
        """[T, in] -> [T, out]."""
        return self.product(x, self.weight, self.bias)


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear` by oneDNN, also where PyTorch would choose another library.

    Raises:
        RuntimeError: a build of PyTorch without oneDNN, or a dtype that it cannot multiply.
    """
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


@torch.inference_mode()
def choose_product(weights: Sequence[Tensor]) -> ProductChoice:
    """Tries the products on some of a model's weights, with as many threads as torch has now.

    Args:
        weights: `[out, in]` each, on the CPU: those of a few layers. They are only read.

    Returns:
        For each number of rows in `TRIAL_ROWS` the faster product. `F.linear` alone where oneDNN is
        missing, cannot multiply this dtype, or gives other results.
    """
    sample = _enough(weights)
    if not sample or not _agree(onednn_linear, sample[0], sample[0]):
        return ProductChoice()
    chosen = [_faster(sample, rows) for rows in TRIAL_ROWS]
    return ProductChoice(tuple(zip(TRIAL_ROWS[:-1], chosen[:-1], strict=True)), chosen[-1])


@torch.inference_mode()
def panels_pay(weights: Sequence[Tensor], other: Product) -> bool:
    """Whether weights in panels are ahead of another product, or not clearly behind, on the whole: the mean
    of the ratios for the numbers of rows in `TRIAL_ROWS`.

    Args:
        weights: as for `choose_product`.
        other: for weights in rows.
    """
    sample = [weight for weight in _enough(weights) if fits_panels(weight)]
    if not sample or not _agree(panel_linear, in_panels(sample[0]), sample[0]):
        return False
    panels = [in_panels(weight) for weight in sample]
    ratios = [_seconds(panel_linear, panels, rows) / _seconds(other, sample, rows) for rows in TRIAL_ROWS]
    return geometric_mean(ratios) < ADVANTAGE


def _enough(weights: Sequence[Tensor]) -> list[Tensor]:
    """The first of them, up to `TRIAL_BYTES`."""
    sample: list[Tensor] = []
    num_bytes = 0
    for weight in weights:
        if num_bytes >= TRIAL_BYTES:
            break
        sample.append(weight)
        num_bytes += weight.nbytes
    return sample


def _agree(product: Product, own_weight: Tensor, weight: Tensor) -> bool:
    """Whether a product works and computes what `F.linear` does, given the same weight in its own order."""
    x = torch.linspace(-1, 1, 3 * weight.shape[1], dtype=weight.dtype).view(3, -1)  # [3, in]
    try:
        result = product(x, own_weight, None)  # [3, out]
    except Exception:  # of any kind: a missing operator, numba's own, a compiler that fails
        return False
    expected = F.linear(x, weight)  # [3, out]
    size = float(expected.abs().max())
    tolerance = 1e-5 if weight.dtype == torch.float32 else 2e-2
    return bool(torch.allclose(result, expected, rtol=0, atol=tolerance * size))


def _faster(weights: Sequence[Tensor], rows: int) -> Product:
    plain, onednn = (_seconds(product, weights, rows) for product in (F.linear, onednn_linear))
    return onednn_linear if onednn * ADVANTAGE < plain else F.linear


def _seconds(product: Product, weights: Sequence[Tensor], rows: int) -> float:
    """The faster of two runs over all weights, in rows or in panels."""
    widths = [weight.shape[1] for weight in weights]
    inputs = {width: torch.ones(rows, width, dtype=weights[0].dtype) for width in set(widths)}
    best = float("inf")
    for _ in range(2):
        began = time.perf_counter()
        for weight, width in zip(weights, widths, strict=True):
            product(inputs[width], weight, None)
        best = min(best, time.perf_counter() - began)
    return best
