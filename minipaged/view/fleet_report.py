"""A fleet's size and its routing, as text and a table for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from minipaged.sim.deployment import Deployment
from minipaged.sim.fleet import FleetResult, Routing
from minipaged.sim.knee import Targets
from minipaged.sim.systems import System
from minipaged.view.whole_table import WholeTable


@dataclass(frozen=True)
class FleetSize:
    """How large a fleet must be.

    Attributes:
        rate: requests per second of the whole load.
        targets: the latency targets.
        knee: the largest rate at which one replica meets the targets.
        num_replicas: the rate divided by the knee, rounded up.
        devices_per_replica: devices of one replica.
        routed: the whole fleet, simulated with each way of routing; empty with a single replica.
    """

    rate: float
    targets: Targets
    knee: float
    num_replicas: int
    devices_per_replica: int
    routed: Mapping[Routing, FleetResult]


def fleet_report(system: System, deployment: Deployment, size: FleetSize) -> RenderableType:
    """The size with its arithmetic, the routing, and what was assumed."""
    num_devices = size.num_replicas * size.devices_per_replica
    answer = (
        f"{size.rate:g} requests/s need {size.num_replicas} replicas, {num_devices} × "
        f"{deployment.device.name}. Simulated here."
    )
    arithmetic = (
        f"One replica ({system.title}, {deployment.model.name} on {size.devices_per_replica} × "
        f"{deployment.device.name}) keeps {size.targets.time_to_first_token:g} s to the first token and "
        f"{size.targets.time_per_output_token:g} s for each other one, for nine of ten requests, up to "
        f"{size.knee:.3g} requests/s. {size.rate:g} / {size.knee:.3g} = {size.rate / size.knee:.2f}."
    )
    parts: list[RenderableType] = [Text(answer, style="bold"), Text(arithmetic)]
    if size.routed:
        parts += [Text(), _routing(size)]
    parts += [
        Text(),
        Text(
            "- assumed: the same arrivals all day, every replica alike and none failing, and the steps of a "
            "datasheet's peaks. Real kernels are slower: --efficiency, --overhead. A load that bursts needs "
            "more: --burst."
        ),
    ]
    return Group(*parts)


def _routing(size: FleetSize) -> WholeTable:
    table = WholeTable(
        f"{size.num_replicas} replicas at {size.rate:g} requests/s; seconds, p90",
        "routing",
        "first token",
        "each other",
        "prompt cached",
        "busiest",
    )
    for routing, result in size.routed.items():
        table.add_row(
            routing,
            f"{result.time_to_first_token.p90:.3f}",
            f"{result.time_per_output_token.p90:.4f}",
            f"{result.prefix_hits:.1%}",
            f"{max(result.shares):.1%}",
        )
    return table
