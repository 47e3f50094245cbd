"""What the figures have in common: the paper's models on its machines, and how they are simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from minipaged.errors import ConfigError
from minipaged.loading.known_models import find_known_model
from minipaged.sim.deployment import Deployment
from minipaged.sim.device import find_device
from minipaged.sim.lengths import LengthDistribution
from minipaged.sim.measures import SimulationResult
from minipaged.sim.run import make_simulation, simulate, simulate_full
from minipaged.sim.systems import find_system
from minipaged.sim.timed_request import TimedRequest, all_at_once, poisson, stream

PaperModel = Literal["OPT-13B", "OPT-66B", "OPT-175B", "Llama-13B"]

_SETUPS: dict[PaperModel, tuple[str, int, int]] = {
    "OPT-13B": ("A100-40GB", 1, 15_728),
    "OPT-66B": ("A100-40GB", 4, 9_700),
    "OPT-175B": ("A100-80GB", 8, 60_100),
    "Llama-13B": ("A100-40GB", 1, 15_728),  # not in the table; its weights are as large as OPT-13B's
}
"""Device, number of devices and KV slots of each model (paper, Table 1)."""

WARM_UP = 200
"""How many requests are answered before a measurement with a full queue begins."""


@dataclass(frozen=True)
class Setting:
    """How the figures are simulated.

    Attributes:
        num_requests: how many answered requests each number is measured with.
        seed: the seed of the lengths and the arrivals.
        efficiency: share of the datasheet's peaks that kernels reach.
        tell: called with a description of what is simulated next.
    """

    num_requests: int = 1000
    seed: int = 0
    efficiency: float = 1.0
    tell: Callable[[str], None] = lambda text: None

    def __post_init__(self) -> None:
        if self.num_requests < 1:
            raise ConfigError(f"a figure needs at least 1 request, not {self.num_requests}")

    def deployment(self, model: PaperModel) -> Deployment:
        """A model on the paper's devices, with the paper's number of KV slots."""
        shape = find_known_model(model)
        assert shape is not None
        device, num_devices, num_slots = _SETUPS[model]
        return Deployment(
            shape,
            find_device(device).at_efficiency(self.efficiency),
            num_devices=num_devices,
            kv_cache_bytes=num_slots * shape.kv_shape().bytes_per_token,
        )

    def drawn(
        self, lengths: LengthDistribution, *, num_samples: int = 1, num_prefix_tokens: int = 0
    ) -> Iterator[TimedRequest]:
        """Requests for a queue that is never empty. They are the same for every system."""
        return stream(
            lengths,
            all_at_once(),
            np.random.default_rng(self.seed),
            num_samples=num_samples,
            num_prefix_tokens=num_prefix_tokens,
        )

    def full(
        self,
        system: str,
        model: PaperModel,
        requests: Iterator[TimedRequest],
        *,
        block_size: int = 16,
        num_requests: int | None = None,
    ) -> SimulationResult:
        """Simulate a system with a queue that is never empty, which shows its highest throughput."""
        self.tell(f"{system}, {model}, a full queue")
        simulation = make_simulation(find_system(system), self.deployment(model), block_size=block_size)
        wanted = num_requests or self.num_requests
        return simulate_full(simulation, requests, num_requests=wanted, warm_up=min(wanted, WARM_UP))

    def at_rate(
        self,
        system: str,
        model: PaperModel,
        lengths: LengthDistribution,
        rate: float,
        *,
        num_requests: int | None = None,
    ) -> SimulationResult:
        """Simulate a system under Poisson arrivals."""
        self.tell(f"{system}, {model}, {lengths.name} at {rate:g} requests/s")
        simulation = make_simulation(find_system(system), self.deployment(model))
        rng = np.random.default_rng(self.seed)
        requests = stream(lengths, poisson(rate, rng), rng, num_requests=num_requests or self.num_requests)
        return simulate(simulation, requests)
