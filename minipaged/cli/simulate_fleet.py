"""`minipaged simulate fleet`: shows how many devices a load needs, and the effect of routing."""

from __future__ import annotations

import argparse
import json
import math
from typing import TYPE_CHECKING

from minipaged.cli.simulation_options import (
    add_load,
    add_system,
    make_deployment,
    make_requests,
    positive,
    replaced_settings,
)
from minipaged.cli.streams import remark, stdout_console
from minipaged.errors import ConfigError

if TYPE_CHECKING:
    from minipaged.sim.measures import SimulationResult

MOST_REPLICAS = 64
"""The most replicas that are simulated together."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged simulate fleet`."""
    add_system(parser, default="minipaged")
    add_load(parser)
    targets = parser.add_argument_group("targets, for nine of ten requests")
    targets.add_argument(
        "--ttft", type=positive, metavar="S", default=1.0, help="seconds to the first token (default 1)"
    )
    targets.add_argument(
        "--tpot", type=positive, metavar="S", default=0.05, help="seconds for each other token (default 0.05)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Size the fleet, then simulate it with each way of routing.

    Raises:
        MinipagedError: a name or a size cannot be simulated, or no fleet meets the targets.
    """
    from dataclasses import asdict

    import numpy as np

    from minipaged.sim.fleet import ROUTINGS, Fleet
    from minipaged.sim.knee import Targets, find_knee
    from minipaged.sim.run import make_simulation, simulate
    from minipaged.sim.systems import find_system
    from minipaged.view.fleet_report import FleetSize, fleet_report

    if args.arrivals is not None:
        raise ConfigError("a trace has one rate, and a fleet is sized by trying others: give lengths instead")
    system, deployment = find_system(args.system), make_deployment(args)
    settings = replaced_settings(args)
    longest = deployment.model.max_position_embeddings

    def one_replica(rate: float) -> SimulationResult:
        requests, _ = make_requests(args, longest, rate=rate)
        result = simulate(make_simulation(system, deployment, **settings), requests)
        remark(
            f"one replica at {rate:.3g} requests/s: first token {result.time_to_first_token.p90:.3g} s, "
            f"each other {result.time_per_output_token.p90:.3g} s (p90)"
        )
        return result

    # All requests arrive at once. While the last ones end, the batch is small, so a replica can sustain a
    # somewhat higher rate than this run's.
    highest = 1.5 * one_replica(1e6).requests_per_second
    targets = Targets(args.ttft, args.tpot)
    knee, _ = find_knee(targets, highest, one_replica)
    num_replicas = math.ceil(args.rate / knee)
    if num_replicas > MOST_REPLICAS:
        remark(f"{num_replicas} replicas are not simulated together: at most {MOST_REPLICAS} are")
    routed = {}
    for routing in ROUTINGS if 1 < num_replicas <= MOST_REPLICAS else ():
        remark(f"{num_replicas} replicas, routing: {routing}")
        replicas = [make_simulation(system, deployment, **settings) for _ in range(num_replicas)]
        requests, _ = make_requests(args, longest, replicas=num_replicas)
        routed[routing] = Fleet(replicas, routing, np.random.default_rng(args.seed)).serve(requests)
    size = FleetSize(args.rate, targets, knee, num_replicas, deployment.num_devices, routed)
    if args.json:
        print(json.dumps(asdict(size), indent=2))
    else:
        stdout_console().print(fleet_report(system, deployment, size))
    return 0
