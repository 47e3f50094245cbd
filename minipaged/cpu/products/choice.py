"""Find out which matrix product is fastest on this CPU, by a trial when an engine is made.

`torch.nn.functional.linear` calls MKL in float32 and oneDNN in bfloat16. Which library is faster depends on
the processor and on the number of rows: on some processors MKL takes twice as long as oneDNN, on others it is
faster. Our own product needs the weights in panels, so an engine uses it for every number of rows or not at
all. On processors with matrix instructions, no loop over vectors can match the libraries. So a short trial
decides, with a few different numbers of rows.
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
"""The numbers of rows that are tried. Decodes have few rows, prefills have many. A trial decides for all
numbers of rows from the previous trial's up to its own. The last trial also decides for larger numbers."""

TRIAL_BYTES = 16 * 1024**2
"""How many bytes of weights are read in one trial. This is more than a core's own caches hold, so the weights
come from memory, as in a step."""

ADVANTAGE = 1.2
"""How many times faster than PyTorch's own choice another product must be. Libraries differ in the last bits
of a sum, so a machine should not change its choice from day to day because of a tiny difference."""


@dataclass(frozen=True)
class ProductChoice:
    """Chooses a product by the number of rows.

    Attributes:
        by_rows: pairs (largest number of rows, product), in ascending order.
        beyond: the product for still more rows.
    """

    by_rows: tuple[tuple[int, Product], ...] = ()
    beyond: Product = F.linear

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Multiply with the product for this number of rows."""
        for most_rows, product in self.by_rows:
            if len(x) <= most_rows:
                return product(x, weight, bias)
        return self.beyond(x, weight, bias)


class ChosenLinear(nn.Module):
    """Computes a `Linear` by another product, with the same weights.

    Args:
        linear: the `Linear` with the weights.
        product: multiplies by weights in rows.
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
    """`F.linear` by oneDNN, even where PyTorch would choose another library.

    Raises:
        RuntimeError: PyTorch was built without oneDNN, or oneDNN cannot multiply this dtype.
    """
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


@torch.inference_mode()
def choose_product(weights: Sequence[Tensor]) -> ProductChoice:
    """Try the products on some of a model's weights, with torch's current number of threads.

    Args:
        weights: `[out, in]` each, on the CPU, from a few layers. They are only read.

    Returns:
        The faster product for each number of rows in `TRIAL_ROWS`. It is `F.linear` for all of these numbers
        if oneDNN is missing, cannot multiply this dtype, or gives other results.
    """
    sample = _enough(weights)
    if not sample or not _agree(onednn_linear, sample[0], sample[0]):
        return ProductChoice()
    chosen = [_faster(sample, rows) for rows in TRIAL_ROWS]
    return ProductChoice(tuple(zip(TRIAL_ROWS[:-1], chosen[:-1], strict=True)), chosen[-1])


@torch.inference_mode()
def panels_pay(weights: Sequence[Tensor], other: Product) -> bool:
    """Whether multiplying by panels is faster than another way to multiply, or at least not clearly slower.

    The mean over the numbers of rows in `TRIAL_ROWS` decides.

    Args:
        weights: as for `choose_product`.
        other: multiplies by weights in rows.
    """
    sample = [weight for weight in _enough(weights) if fits_panels(weight)]
    if not sample or not _agree(panel_linear, in_panels(sample[0]), sample[0]):
        return False
    panels = [in_panels(weight) for weight in sample]
    ratios = [_seconds(panel_linear, panels, rows) / _seconds(other, sample, rows) for rows in TRIAL_ROWS]
    return geometric_mean(ratios) < ADVANTAGE


def _enough(weights: Sequence[Tensor]) -> list[Tensor]:
    """The first weights, as many as are needed for `TRIAL_BYTES`."""
    sample: list[Tensor] = []
    num_bytes = 0
    for weight in weights:
        if num_bytes >= TRIAL_BYTES:
            break
        sample.append(weight)
        num_bytes += weight.nbytes
    return sample


def _agree(product: Product, own_weight: Tensor, weight: Tensor) -> bool:
    """Whether a product runs and agrees with `F.linear`; `own_weight` is `weight` in the product's order."""
    x = torch.linspace(-1, 1, 3 * weight.shape[1], dtype=weight.dtype).view(3, -1)  # [3, in]
    try:
        result = product(x, own_weight, None)  # [3, out]
    except Exception:  # any kind: a missing operator, an error of numba, a compiler that fails
        return False
    expected = F.linear(x, weight)  # [3, out]
    size = float(expected.abs().max())
    tolerance = 1e-5 if weight.dtype == torch.float32 else 2e-2
    return bool(torch.allclose(result, expected, rtol=0, atol=tolerance * size))


def _faster(weights: Sequence[Tensor], rows: int) -> Product:
    plain, onednn = (_seconds(product, weights, rows) for product in (F.linear, onednn_linear))
    return onednn_linear if onednn * ADVANTAGE < plain else F.linear


def _seconds(product: Product, weights: Sequence[Tensor], rows: int) -> float:
    """The time of the faster of two runs over all weights. The weights are in rows or in panels."""
    widths = [weight.shape[1] for weight in weights]
    inputs = {width: torch.ones(rows, width, dtype=weights[0].dtype) for width in set(widths)}
    best = float("inf")
    for _ in range(2):
        began = time.perf_counter()
        for weight, width in zip(weights, widths, strict=True):
            product(inputs[width], weight, None)
        best = min(best, time.perf_counter() - began)
    return best
