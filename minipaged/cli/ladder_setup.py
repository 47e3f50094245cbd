"""The setup of the ladder: the model, the sizes that fit it, and the workloads."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from minipaged.cli.engine_options import fetch_model
from minipaged.errors import ConfigError
from minipaged.kv.size import KVShape, blocks_needed, num_blocks_that_fit
from minipaged.options import EngineOptions
from minipaged.stages import NUM_STAGES

if TYPE_CHECKING:
    from minipaged.bench.ladder import Ladder
    from minipaged.loading.loader import LoadedModel
    from minipaged.sim.workload import Workload

NUM_REQUESTS = 32
MAX_MODEL_LEN = 256
"""The context to which the workload is scaled, unless the model's is shorter. It is short, to save time."""

NUM_LONGEST = 3
"""The default KV memory holds only this many requests of the maximum length, because it must be scarce."""

FEWEST_BLOCKS = 3
"""The size of the smallest pool: the null block, and two blocks for tokens."""

PREFIX_STAGES = (2, 7, 8)
"""Stages for the workload with a shared prefix: the baseline, and the stages without and with reuse."""

PREFIX_TOKENS = 341
PREFIX_MAX_MODEL_LEN = 2048
"""The context for the workload with a shared prefix. In the paper (Fig. 16), five examples precede each
translation, in a model with this context."""


def prepare(args: argparse.Namespace) -> tuple[Ladder, list[tuple[Workload, Sequence[int]]]]:
    """Load the model, fit the sizes to it, and draw the workloads, each with its list of stages.

    Raises:
        ConfigError: the sizes do not fit together.
        ModelNotFoundError, UnsupportedModelError, WeightsError: the model cannot be loaded.
    """
    from minipaged.bench.ladder import Ladder
    from minipaged.config import EngineConfig
    from minipaged.engine.assembly import load_configured_model
    from minipaged.sim.lengths import ALPACA, SHAREGPT
    from minipaged.sim.workload import make_shared_prefix_workload, make_workload

    fetch_model(args)
    options = EngineOptions(
        dtype=args.dtype, device=args.device, block_size=args.block_size, load_format=args.load_format
    )
    model = load_configured_model(EngineConfig(args.model, **options))
    num_usable, max_model_len = choose_sizes(args, model)
    ladder = Ladder(model, num_usable, max_model_len, options)
    ladder.check(args.stages)
    vocab_size = model.config.vocab_size
    workloads: list[tuple[Workload, Sequence[int]]] = [
        (make_workload(SHAREGPT.scaled_to(max_model_len), args.requests, vocab_size, args.seed), args.stages)
    ]
    prefix_stages = [stage for stage in PREFIX_STAGES if stage in args.stages]
    num_prefix_tokens = PREFIX_TOKENS * max_model_len // PREFIX_MAX_MODEL_LEN
    if NUM_STAGES in prefix_stages and num_prefix_tokens:
        shared = make_shared_prefix_workload(
            ALPACA.scaled_to(max_model_len),
            args.requests,
            vocab_size,
            args.seed,
            num_prefix_tokens=num_prefix_tokens,
        )
        workloads.append((shared, prefix_stages))
    return ladder, workloads


def choose_sizes(args: argparse.Namespace, model: LoadedModel) -> tuple[int, int]:
    """The KV memory in blocks, without the null block, and the length of the longest request in tokens.

    Raises:
        ConfigError: the memory is too small for any request.
    """
    shape = model.config
    longest = min(MAX_MODEL_LEN, shape.max_position_embeddings)
    num_blocks: int | None = args.num_blocks
    if args.kv_memory is not None:
        dtype_bytes = model.decoder.dtype.itemsize
        kv_shape = KVShape(shape.num_layers, shape.num_kv_heads, shape.head_dim, dtype_bytes)
        num_blocks = num_blocks_that_fit(args.kv_memory, kv_shape, args.block_size)
    if num_blocks is None:
        longest = args.max_model_len or longest
        return NUM_LONGEST * blocks_needed(longest, args.block_size), longest
    if num_blocks < FEWEST_BLOCKS:
        raise ConfigError(
            f"the KV memory is {num_blocks} blocks, including the null block: the ladder needs at least "
            f"{FEWEST_BLOCKS}"
        )
    usable = num_blocks - 1
    return usable, args.max_model_len or min(longest, usable * args.block_size)
