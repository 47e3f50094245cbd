"""`minipaged simulate calibrate`: shows how well a simulation predicts the engine on this machine."""

from __future__ import annotations

import argparse
import json

from minipaged.cli.arguments import positive_int
from minipaged.cli.ladder import seed
from minipaged.cli.streams import remark, stdout_console

NUM_REQUESTS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged simulate calibrate`."""
    parser.add_argument(
        "--model", default="tiny", help="tiny, smollm2-135m, a folder or a hub id (default tiny)"
    )
    parser.add_argument(
        "--requests",
        type=positive_int,
        metavar="N",
        default=NUM_REQUESTS,
        help=f"requests of each of the four loads (default {NUM_REQUESTS})",
    )
    parser.add_argument("--seed", type=seed, metavar="N", default=0, help="(default 0)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Fit a simulation to the engine, predict held-out loads, and compare with measurements.

    Raises:
        MinipagedError: the model cannot be run.
    """
    from dataclasses import asdict

    from minipaged.config import EngineConfig
    from minipaged.engine.assembly import load_configured_model
    from minipaged.sim.calibration import calibrate
    from minipaged.view.calibration_report import calibration_report

    model = load_configured_model(EngineConfig(model=args.model), progress=True)
    found = calibrate(model, num_requests=args.requests, seed=args.seed, tell=remark)
    if args.json:
        print(json.dumps(asdict(found), indent=2))
    else:
        stdout_console().print(calibration_report(found))
    return 0
