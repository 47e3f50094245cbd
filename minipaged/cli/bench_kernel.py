"""`minipaged bench kernel --compile-only`: shows the GPU resources that the attention kernels need."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from minipaged.bench.kernel_resources import TARGETS
from minipaged.errors import ConfigError

HEAD_DIMS = (64, 80, 96, 128, 256)
DTYPES = ("float16", "bfloat16", "float32")
BLOCK_SIZES = (16, 32, 64, 128)
EXIT_DOES_NOT_FIT = 1
NEEDS = ("registers", "spilled", "shared", "limit", "at once")
ROW = "{:11} {:8} {:>4} {:>5} {:>5}  {:6} {:>9} {:>7} {:>7} {:>7} {:>7}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged bench kernel`."""
    parser.add_argument(
        "--compile-only",
        action="store_true",
        required=True,
        help="compile without running anything; this needs no GPU",
    )
    parser.add_argument(
        "--head-dim",
        type=int,
        nargs="+",
        choices=HEAD_DIMS,
        default=list(HEAD_DIMS),
        metavar="N",
        help=f"head dimensions (default: {', '.join(map(str, HEAD_DIMS))})",
    )
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES), help="(default: all)")
    parser.add_argument(
        "--target", nargs="+", choices=list(TARGETS), default=list(TARGETS), help="(default: all)"
    )
    parser.add_argument(
        "--group",
        type=int,
        nargs="+",
        choices=range(1, 9),
        default=[4],
        metavar="N",
        help="query heads for each KV head, 1 to 8 (default: 4)",
    )
    parser.add_argument(
        "--block-size", type=int, nargs="+", choices=BLOCK_SIZES, default=[16], help="(default: 16)"
    )


def run(args: argparse.Namespace) -> int:
    """Print a line for each kernel and GPU, as soon as it is compiled.

    Returns:
        0; or 1 if a kernel spills registers, or needs more shared memory than a GPU has.

    Raises:
        ConfigError: Triton is missing, or this process interprets Triton's kernels.
    """
    if find_spec("triton") is None:
        raise ConfigError("the kernels need the package triton, which is published for Linux only")
    import torch

    from minipaged.bench.kernel_compile import KERNELS, compile_variant, variants
    from minipaged.triton_kernels.gpu import programs_per_multiprocessor

    print(ROW.format("kernel", "dtype", "head", "group", "block", "GPU", *NEEDS))
    num_bad = 0
    dtypes = [getattr(torch, name) for name in args.dtype]
    for variant in variants(KERNELS, dtypes, args.head_dim, args.group, args.block_size, args.target):
        gpu, compiled = TARGETS[variant.target], compile_variant(variant)
        fault = compiled.fault_on(gpu)
        num_bad += fault is not None
        text = ROW.format(
            variant.name,
            str(variant.dtype).removeprefix("torch."),
            variant.head_dim,
            variant.group,
            variant.block_size,
            variant.target,
            compiled.needs.registers,
            compiled.spill_bytes,
            f"{compiled.needs.shared_bytes:,}",
            f"{gpu.program_bytes:,}",
            programs_per_multiprocessor(compiled.needs, gpu),
        )
        print(text if fault is None else f"{text}  {fault}", flush=True)
    print("Registers and spilled bytes are for each thread, shared memory (bytes) for each program.")
    print("at once: how many such programs a multiprocessor holds.")
    if num_bad:
        print(f"{num_bad} of them do not fit or spill registers.")
        return EXIT_DOES_NOT_FIT
    print("All fit, and nothing is spilled.")
    return 0
