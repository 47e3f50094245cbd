"""The command-line options that all commands with an engine share, and their values for the engine."""

from __future__ import annotations

import argparse
import sys
from typing import Literal, get_args

from minipaged.choices import AttentionBackend, DType, LoadFormat
from minipaged.cli.arguments import memory_amount, positive_int
from minipaged.cli.streams import remark
from minipaged.options import EngineOptions
from minipaged.stages import NUM_STAGES, stage_options

_ENGINE_OPTIONS = (
    "dtype",
    "device",
    "block_size",
    "num_blocks",
    "kv_cache_memory_bytes",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "enable_prefix_caching",
    "attention_backend",
    "enforce_eager",
    "load_format",
)


def max_model_len(text: str) -> int | Literal["auto"]:
    """An integer of at least 1, or `auto`."""
    return "auto" if text == "auto" else positive_int(text)


def add_engine_arguments(parser: argparse.ArgumentParser, *, model: str) -> None:
    """Add `--model` and the engine's options. An option that the user does not give stays `None`."""
    parser.add_argument(
        "--model",
        default=model,
        help=f"tiny, smollm2-135m, a folder, a .gguf file, or a hub id (default {model})",
    )
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--stage",
        type=int,
        choices=range(1, NUM_STAGES + 1),
        help="the engine as it is after that chapter of the course; other options override its settings "
        f"(default {NUM_STAGES}, the complete engine)",
    )
    group.add_argument(
        "--dtype", choices=get_args(DType), help="dtype of weights and KV cache (default auto)"
    )
    group.add_argument("--device", help="auto, cpu, cuda, cuda:N or mps (experimental) (default auto)")
    group.add_argument("--block-size", type=positive_int, metavar="N", help="tokens per block (default 16)")
    pool = group.add_mutually_exclusive_group()
    pool.add_argument(
        "--num-blocks", type=positive_int, metavar="N", help="blocks in the pool, including the null block"
    )
    pool.add_argument(
        "--kv-memory",
        dest="kv_cache_memory_bytes",
        type=memory_amount,
        metavar="1GiB",
        help="memory for the KV cache (default on a CPU: a quarter of the free memory, or less if "
        "--max-num-seqs requests need less)",
    )
    group.add_argument(
        "--max-model-len",
        type=max_model_len,
        metavar="N",
        help="largest number of tokens of prompt and output together; auto: the largest that fits "
        "(default: the model's own)",
    )
    group.add_argument(
        "--max-num-seqs", type=positive_int, metavar="N", help="most sequences in one step (default 128)"
    )
    group.add_argument(
        "--max-num-batched-tokens",
        type=positive_int,
        metavar="N",
        help="token budget of one step (default 2048)",
    )
    group.add_argument(
        "--no-prefix-caching",
        dest="enable_prefix_caching",
        action="store_const",
        const=False,
        help="do not reuse the blocks of equal prefixes",
    )
    group.add_argument("--attention-backend", choices=get_args(AttentionBackend), help="(default auto)")
    group.add_argument(
        "--enforce-eager",
        action="store_const",
        const=True,
        help="on a GPU: launch the kernels of a decode step one by one, without CUDA graphs",
    )
    group.add_argument(
        "--load-format", choices=get_args(LoadFormat), help="dummy: random weights of the real shape"
    )


def engine_options(args: argparse.Namespace) -> EngineOptions:
    """The engine options that the user gave. With `--stage`, they override the options of the stage."""
    options = EngineOptions() if args.stage is None else stage_options(args.stage)
    for name in _ENGINE_OPTIONS:
        value = getattr(args, name)
        if value is not None:
            options[name] = value
    return options


def fetch_model(args: argparse.Namespace) -> None:
    """Fetch the model if it is not on this machine. In a terminal, show a message and a progress bar.

    Raises:
        ModelNotFoundError: there is no such model, or it cannot be fetched.
    """
    from minipaged.loading.locations import locate_or_fetch

    in_terminal = sys.stderr.isatty()
    if in_terminal:
        remark(f"Loading {args.model}")
    locate_or_fetch(args.model, weights=args.load_format != "dummy", progress=in_terminal)
