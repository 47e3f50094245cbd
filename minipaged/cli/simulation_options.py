"""The options for a simulation's system and load, and the deployment and requests made from them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from minipaged.cli.arguments import memory_amount, positive_int, share
from minipaged.cli.ladder import seed
from minipaged.cli.streams import remark

if TYPE_CHECKING:
    from minipaged.sim.deployment import Deployment
    from minipaged.sim.lengths import LengthDistribution
    from minipaged.sim.timed_request import TimedRequest

NUM_REQUESTS = 1000


def positive(text: str) -> float:
    """A number above 0."""
    value = not_negative(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return value


def not_negative(text: str) -> float:
    """A number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def add_system(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the options of the system, its model and its devices."""
    system = parser.add_argument_group("system")
    system.add_argument(
        "--system",
        default=default,
        help="fastertransformer, orca-max, orca-pow2, orca-oracle, vllm, vllm-swap or minipaged "
        f"(default {default})",
    )
    system.add_argument("--model", default="OPT-13B", help="as in `minipaged kv` (default OPT-13B)")
    system.add_argument(
        "--device", default="A100-40GB", help="A100-40GB, A100-80GB, H100 or H200 (default A100-40GB)"
    )
    system.add_argument("--num-devices", type=positive_int, metavar="N", default=1, help="(default 1)")
    system.add_argument(
        "--kv-memory",
        type=memory_amount,
        metavar="12GiB",
        help="memory for the KV cache (default: what 92 %% of the devices' memory leave after the weights)",
    )
    system.add_argument("--block-size", type=positive_int, metavar="N", default=16, help="(default 16)")
    system.add_argument("--max-num-seqs", type=positive_int, metavar="N", default=256, help="(default 256)")
    system.add_argument(
        "--max-num-batched-tokens", type=positive_int, metavar="N", default=2048, help="(default 2048)"
    )
    system.add_argument(
        "--efficiency",
        type=share,
        metavar="SHARE",
        default=1.0,
        help="share of the datasheet's peaks that kernels reach (default 1)",
    )
    system.add_argument(
        "--overhead", type=not_negative, metavar="MS", default=0.0, help="added to each step (default 0)"
    )


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add the options of the load."""
    load = parser.add_argument_group("load")
    source = load.add_mutually_exclusive_group()
    source.add_argument(
        "--lengths", choices=("sharegpt", "alpaca"), default="sharegpt", help="(default sharegpt)"
    )
    source.add_argument(
        "--arrivals", type=Path, metavar="FILE.jsonl", help="arrivals and lengths from a file"
    )
    source.add_argument(
        "--sharegpt", type=Path, metavar="FILE.json", help="lengths from a file of ShareGPT's form"
    )
    load.add_argument(
        "--tokenizer",
        metavar="MODEL",
        default="tiny",
        help="counts the tokens of --sharegpt: tiny, smollm2-135m, a folder or a hub id (default tiny)",
    )
    load.add_argument(
        "--rate", type=positive, metavar="R", default=2.0, help="requests per second (default 2)"
    )
    load.add_argument(
        "--burst",
        type=not_negative,
        metavar="V",
        default=1.0,
        help="variation of the gaps between arrivals: 0 regular, 1 Poisson, 4 in bursts (default 1)",
    )
    load.add_argument(
        "--requests", type=positive_int, metavar="N", default=NUM_REQUESTS, help=f"(default {NUM_REQUESTS:,})"
    )
    load.add_argument(
        "--samples", type=positive_int, metavar="N", default=1, help="samples of each request (default 1)"
    )
    load.add_argument(
        "--prefix-tokens", type=positive_int, metavar="N", default=0, help="shared tokens before each prompt"
    )
    load.add_argument(
        "--prefixes", type=positive_int, metavar="N", default=1, help="different shared prefixes (default 1)"
    )
    load.add_argument("--seed", type=seed, metavar="N", default=0, help="(default 0)")


def replaced_settings(args: argparse.Namespace) -> dict[str, int]:
    """The settings of the system that the options replace."""
    names = ("block_size", "max_num_seqs", "max_num_batched_tokens")
    return {name: getattr(args, name) for name in names}


def make_deployment(args: argparse.Namespace) -> Deployment:
    """The deployment: the model and the devices that the arguments name."""
    from minipaged.loading.shape_lookup import shape_of
    from minipaged.sim.deployment import Deployment
    from minipaged.sim.device import find_device

    return Deployment(
        shape_of(args.model),
        find_device(args.device).at_efficiency(args.efficiency),
        num_devices=args.num_devices,
        kv_cache_bytes=args.kv_memory,
        overhead=args.overhead / 1000,
    )


def make_requests(
    args: argparse.Namespace, max_model_len: int, *, rate: float | None = None, replicas: int = 1
) -> tuple[Iterator[TimedRequest], int | None]:
    """The requests of the load.

    Args:
        args: the options.
        max_model_len: length of the longest request, in tokens.
        rate: requests per second, instead of `--rate`.
        replicas: number of replicas. `--requests` is the number of requests for each replica.

    Returns:
        The requests, and how many there will be if that is known.
    """
    import numpy as np

    from minipaged.sim.timed_request import bursty, stream
    from minipaged.sim.trace_files import at_times, read_share_gpt, read_trace

    if args.arrivals is not None:
        return islice(read_trace(args.arrivals), args.requests), None
    rng = np.random.default_rng(args.seed)
    arrivals = bursty(rate or args.rate, args.burst, rng)
    count = args.requests * replicas
    if args.sharegpt is not None:
        lengths = read_share_gpt(args.sharegpt, token_counter(args.tokenizer))
        timed, num_longer = at_times(lengths[:count], arrivals, max_model_len)
        if num_longer:
            remark(f"{num_longer:,} requests of {args.sharegpt} are left out: longer than {max_model_len:,}")
        return iter(timed), len(timed)
    requests = stream(
        distribution(args.lengths, max_model_len),
        arrivals,
        rng,
        num_requests=count,
        num_samples=args.samples,
        num_prefix_tokens=args.prefix_tokens,
        num_prefixes=args.prefixes,
    )
    return requests, count


def distribution(name: str, max_model_len: int) -> LengthDistribution:
    """The lengths of a data set. They are cut at the model's context, and not scaled to it."""
    from dataclasses import replace

    from minipaged.sim.lengths import ALPACA, SHAREGPT

    chosen = SHAREGPT if name == "sharegpt" else ALPACA
    return replace(chosen, max_model_len=min(chosen.max_model_len, max_model_len))


def token_counter(model: str) -> Callable[[str], int]:
    """A function that counts the tokens of a text with a model's tokenizer.

    Raises:
        ConfigError: the model has no tokenizer.
    """
    from minipaged.errors import ConfigError
    from minipaged.loading.loader import load_tokenizer

    tokenizer = load_tokenizer(model)
    if tokenizer is None:
        raise ConfigError(f"{model} has no tokenizer")
    return lambda text: len(tokenizer.encode(text))
