"""`minipaged kv MODEL`: shows how large a model's KV cache is, and how many requests fit into it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from minipaged.cli.arguments import memory_amount, positive_int, share
from minipaged.cli.kv_lengths import LengthRow, length_table
from minipaged.errors import ConfigError
from minipaged.kv.size import (
    KVShape,
    bytes_per_block,
    log_line,
    num_blocks_that_fit,
    resolve_max_model_len,
)
from minipaged.loading.known_models import DTYPE_BYTES, KNOWN_MODELS, ModelShape
from minipaged.view.byte_amounts import format_binary, format_decimal

SHORTEST_LENGTH = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged kv`."""
    names = ", ".join(model.name for model in KNOWN_MODELS)
    parser.add_argument(
        "model",
        metavar="MODEL",
        help=f"a folder with a config.json, a .gguf file, a hub id, or one of: {names}",
    )
    parser.add_argument(
        "--dtype",
        choices=("auto", *DTYPE_BYTES),
        default="auto",
        help="of KV cache and weights (default auto: as published)",
    )
    memory = parser.add_mutually_exclusive_group()
    memory.add_argument(
        "--memory",
        type=memory_amount,
        metavar="24GiB",
        help="the device's memory: the weights are subtracted, the rest is KV cache",
    )
    memory.add_argument(
        "--kv-memory", type=memory_amount, metavar="12GiB", help="memory for the KV cache alone"
    )
    parser.add_argument(
        "--gpu-memory-utilization",
        type=share,
        metavar="SHARE",
        default=0.92,
        help="share of --memory that the engine may take (default 0.92)",
    )
    parser.add_argument(
        "--weights", type=memory_amount, metavar="8GB", help="size of the weights, if not parameters × dtype"
    )
    parser.add_argument(
        "--block-size", type=positive_int, metavar="N", default=16, help="tokens per block (default 16)"
    )
    parser.add_argument(
        "--length",
        type=positive_int,
        metavar="N",
        nargs="+",
        help="lengths to show, in tokens (default: 512, doubled up to the model's longest)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the sizes. Raises `MinipagedError` if the model or an amount cannot be used."""
    from rich.console import Console

    from minipaged.loading.shape_lookup import shape_of
    from minipaged.view.whole_table import fits

    model = shape_of(args.model)
    dtype = model.dtype if args.dtype == "auto" else args.dtype
    shape = model.kv_shape(dtype)
    lengths = sorted(set(args.length)) if args.length else context_lengths(model.max_position_embeddings)
    budget = kv_budget(args, model, dtype)
    num_blocks = None if budget is None else num_blocks_that_fit(budget.num_bytes, shape, args.block_size)

    # Names may contain brackets, which rich would read as markup.
    console = Console(markup=False, highlight=False)

    def say(line: str) -> None:
        # A terminal wraps between words, so no number is cut. In a file or a pipe, a line stays one line.
        console.print(line, soft_wrap=not console.is_terminal)

    say(describe(model, dtype))
    say(formula(shape))
    say(f"A block of {args.block_size} tokens: {_bytes(bytes_per_block(shape, args.block_size))}")
    longest_trained = model.max_position_embeddings
    rows = [LengthRow.of(shape, args.block_size, length, num_blocks, longest_trained) for length in lengths]
    table = length_table(rows)
    if fits(table, console, console.options):
        console.print(table)
    else:  # the terminal is so narrow that it would cut numbers
        for row in rows:
            say(row.in_words())
    if num_blocks is not None:
        say(f"{num_blocks:,} blocks, one of which is the null block")
    if lengths[-1] > longest_trained:
        say(f"* longer than the model was trained for ({longest_trained:,} tokens)")
    if budget is not None and num_blocks is not None:
        say(budget.arithmetic)
        longest = max(lengths) if args.length else longest_trained
        for line in summary(num_blocks, args.block_size, longest):
            say(line)
    return 0


def describe(model: ModelShape, dtype: str) -> str:
    """One line with the model's figures that determine the cache."""
    count = model.num_parameters
    parameters = ""
    if count is not None:
        parameters = (
            f", {count / 1e9:.3g} B parameters" if count >= 1e9 else f", {count / 1e6:.3g} M parameters"
        )
    return (
        f"{model.name}: {model.num_layers} layers, {model.num_heads} query heads, {model.num_kv_heads} KV "
        f"heads, head dimension {model.head_dim}, at most {model.max_position_embeddings:,} tokens, "
        f"{dtype}{parameters}"
    )


def formula(shape: KVShape) -> str:
    """The formula for bytes per token, with the numbers filled in."""
    return (
        f"KV bytes per token = 2 (K and V) × {shape.num_layers} layers × {shape.num_kv_heads} KV heads × "
        f"{shape.head_dim} × {shape.dtype_bytes} bytes = {_bytes(shape.bytes_per_token)}"
    )


def context_lengths(longest: int) -> list[int]:
    """The lengths 512, 1024, 2048, … below `longest`, then `longest` itself."""
    lengths = []
    length = SHORTEST_LENGTH
    while length < longest:
        lengths.append(length)
        length *= 2
    return [*lengths, longest]


@dataclass(frozen=True)
class KVBudget:
    """Memory for the KV cache, and the arithmetic behind it as text."""

    num_bytes: int
    arithmetic: str


def kv_budget(args: argparse.Namespace, model: ModelShape, dtype: str) -> KVBudget | None:
    """Memory for the KV cache with `--memory` or `--kv-memory`; `None` without either option.

    Raises:
        ConfigError: the weights leave no memory, or their size is not known.
    """
    if args.kv_memory is not None:
        return KVBudget(args.kv_memory, f"KV cache: {_bytes(args.kv_memory)}")
    if args.memory is None:
        if args.weights is not None:
            raise ConfigError("--weights is subtracted from a device's memory: give --memory as well")
        return None
    weights = args.weights or model.weights_bytes(dtype)
    if weights is None:
        raise ConfigError(
            f"the size of the weights of {model.name} does not follow from its config: give it, as in "
            "--weights 8GB, or give the memory for the KV cache alone, as in --kv-memory 12GiB"
        )
    usable = int(args.memory * args.gpu_memory_utilization)
    # Answer in the user's units: 24GB is not a whole number of MiB.
    amount = format_binary if args.memory % 2**20 == 0 else format_decimal
    terms = f"{amount(args.memory)} × {args.gpu_memory_utilization:g} − {amount(weights)} of weights"
    if weights >= usable:
        raise ConfigError(
            f"{terms} leaves nothing for the KV cache of {model.name}: take more memory or a smaller dtype"
            + (f". A number without a unit is bytes: {args.memory}GB?" if args.memory < 2**20 else "")
        )
    return KVBudget(
        usable - weights, f"KV cache: {terms} = {amount(usable - weights)} (activations not counted)"
    )


def summary(num_blocks: int, block_size: int, longest: int) -> list[str]:
    """The engine's log line for requests of up to `longest` tokens.

    If no request of that length fits, the lines are the reason, and the log line for the longest requests
    that fit.
    """
    try:
        max_model_len = resolve_max_model_len(longest, longest, num_blocks, block_size)
        return [log_line(num_blocks, block_size, max_model_len)]
    except ConfigError as error:
        lines = [f"Not even one: {error}"]
    if num_blocks > 1:
        max_model_len = resolve_max_model_len("auto", longest, num_blocks, block_size)
        lines.append(log_line(num_blocks, block_size, max_model_len))
    return lines


def _bytes(num_bytes: int) -> str:
    return f"{num_bytes:,} bytes ({format_binary(num_bytes)}, {format_decimal(num_bytes)})"
