"""Measures this machine: how fast memory is read, and how long a model's matrix products take.

The measurement runs as its own program, so that it has the same threads as a contestant. The program reads
a request as JSON from stdin and writes the `MachineRates` as JSON to stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from minipaged.bench.throughput.bounds import MachineRates, Matrices, Shape
from minipaged.bench.throughput.contestants import our_engine
from minipaged.errors import MinipagedError

if TYPE_CHECKING:
    from minipaged.cpu.products.panel_linear import Product

NUM_ROWS = (1, 2, 4, 8, 16, 32, 256)
READ_BYTES = 2**29
REPETITIONS = 5


@dataclass(frozen=True)
class RatesRequest:
    """What to measure.

    Attributes:
        matrices: shapes of the matrices.
        dtype: `float32` or `bfloat16`.
        threads: number of threads to compute with.
        read_bytes: size of the array that is read. It is far larger than the caches.
    """

    matrices: Matrices
    dtype: str
    threads: int
    read_bytes: int = READ_BYTES


def measure_in_process(request: RatesRequest) -> MachineRates:
    """Measure in a new process.

    Raises:
        MinipagedError: the measurement failed. The message has the last line of its log.
    """
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(asdict(request)),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **our_engine(request.threads).environment},
    )
    if done.returncode:
        raise MinipagedError(
            f"the machine's rates cannot be measured: {done.stderr.strip().splitlines()[-1:]}"
        )
    found = json.loads(done.stdout)
    return MachineRates(
        read_bytes_per_second=found["read_bytes_per_second"],
        num_rows=tuple(found["num_rows"]),
        layers_seconds=tuple(found["layers_seconds"]),
        lm_head_seconds=tuple(found["lm_head_seconds"]),
    )


def measure(request: RatesRequest) -> MachineRates:
    """Measure in this process. This sets the number of torch's threads."""
    torch.set_num_threads(request.threads)
    dtype = getattr(torch, request.dtype)
    matrices = request.matrices
    in_layers = [shape for _ in range(matrices.num_layers) for shape in matrices.layer]
    return MachineRates(
        read_bytes_per_second=_read_rate(request.read_bytes, request.threads),
        num_rows=NUM_ROWS,
        layers_seconds=tuple(_products_seconds(in_layers, dtype)),
        lm_head_seconds=tuple(_products_seconds([matrices.lm_head], dtype)),
    )


def _read_rate(num_bytes: int, threads: int) -> float:
    """How many bytes a plain loop reads per second while it adds up an array. Each thread reads a part."""
    import numba

    @numba.njit(parallel=True, fastmath=True)
    def add_up(parts: np.ndarray) -> float:
        total = 0.0
        for i in numba.prange(parts.shape[0]):
            subtotal = np.float32(0)
            for j in range(parts.shape[1]):
                subtotal += parts[i, j]
            total += float(subtotal)
        return total

    parts = np.ones((threads, num_bytes // 4 // threads), dtype=np.float32)
    return parts.nbytes / min(_seconds(lambda: add_up(parts)) for _ in range(REPETITIONS + 1))


def _products_seconds(shapes: Sequence[Shape], dtype: torch.dtype) -> list[float]:
    """For each of `NUM_ROWS`, how many seconds the products with all matrices take by the fastest routine.

    Each matrix has its own memory, so no weights are in a cache by chance.
    """
    weights = [torch.randn(shape, dtype=torch.float32).to(dtype) for shape in shapes]
    in_panels = _in_panels(weights)
    best: list[float] = []
    with torch.inference_mode():
        for num_rows in NUM_ROWS:
            inputs = {columns: torch.randn(num_rows, columns).to(dtype) for _, columns in shapes}
            ways = [(F.linear, weights), *in_panels, *_ordered_by_onednn(weights, num_rows)]
            best.append(min(_all_products(product, used, shapes, inputs) for product, used in ways))
    return best


def _in_panels(weights: Sequence[Tensor]) -> list[tuple[Product, Sequence[Tensor]]]:
    """Our own matrix product, if it accepts all the weights; otherwise an empty list."""
    from minipaged.cpu.products.panel_linear import fits_panels, in_panels, panel_linear

    if not all(fits_panels(weight) for weight in weights):
        return []
    return [(panel_linear, [in_panels(weight) for weight in weights])]


def _ordered_by_onednn(weights: Sequence[Tensor], num_rows: int) -> list[tuple[Product, Sequence[Tensor]]]:
    """oneDNN's product, with the weights in oneDNN's own order. The list is empty if torch has no oneDNN."""
    from minipaged.cpu.products.choice import onednn_linear

    if not torch.backends.mkldnn.is_available():
        return []
    try:
        ordered = [torch.ops.mkldnn._reorder_linear_weight(weight, num_rows) for weight in weights]
    except (RuntimeError, AttributeError):  # not available for this dtype or in this build
        return []
    return [(onednn_linear, ordered)]


def _all_products(
    product: Product, weights: Sequence[Tensor], shapes: Sequence[Shape], inputs: dict[int, Tensor]
) -> float:
    def once() -> None:
        for weight, (_, columns) in zip(weights, shapes, strict=True):
            product(inputs[columns], weight, None)

    return min(_seconds(once) for _ in range(REPETITIONS))


def _seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def _main() -> None:
    given = json.load(sys.stdin)
    matrices = given.pop("matrices")
    layer = tuple((rows, columns) for rows, columns in matrices["layer"])
    rows, columns = matrices["lm_head"]
    request = RatesRequest(Matrices(layer, matrices["num_layers"], (rows, columns)), **given)
    print(json.dumps(asdict(measure(request))))


if __name__ == "__main__":
    _main()
