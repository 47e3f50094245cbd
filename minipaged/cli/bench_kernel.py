"""`minipaged bench kernel --compile-only`: the GPU resources that the attention kernels need."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from minipaged.bench.kernel_resources import SHARED_MEMORY
from minipaged.errors import ConfigError

HEAD_DIMS = (64, 80, 96, 128, 256)
DTYPES = ("float16", "bfloat16", "float32")
EXIT_DOES_NOT_FIT = 1


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


def run(args: argparse.Namespace) -> int:
    """Print a line for each kernel, dtype, head dimension and chip, as soon as it is compiled.

    Returns:
        0; or 1 if a kernel spills registers, or needs more shared memory than a chip has.

    Raises:
        ConfigError: Triton is missing, or this process interprets Triton's kernels.
    """
    if find_spec("triton") is None:
        raise ConfigError("the kernels need the package triton, which is published for Linux only")
    import torch

    from minipaged.bench.kernel_compile import KERNELS, compile_variant, variants

    print(line("kernel", "dtype", "head", "chip", "registers", "spilled", "shared memory"))
    num_bad = 0
    for variant in variants(KERNELS, [getattr(torch, name) for name in args.dtype], args.head_dim):
        for capability in SHARED_MEMORY:
            taken = compile_variant(variant, capability)
            fault = taken.fault_on(capability)
            num_bad += fault is not None
            dtype = str(variant.dtype).removeprefix("torch.")
            figures = (f"{taken.registers}", f"{taken.spill_bytes}", f"{taken.shared_bytes:,}")
            text = line(variant.name, dtype, f"{variant.head_dim}", f"sm_{capability}", *figures)
            print(text if fault is None else f"{text}  {fault}", flush=True)
    print("Registers and spilled bytes are for each thread, shared memory (bytes) for each program.")
    if num_bad:
        print(f"{num_bad} of them do not fit or spill registers.")
        return EXIT_DOES_NOT_FIT
    print("All fit, and nothing is spilled.")
    return 0


def line(kernel: str, dtype: str, head: str, chip: str, registers: str, spilled: str, shared: str) -> str:
    """One line of the table."""
    return f"{kernel:12} {dtype:9} {head:>4}  {chip:5}  {registers:>9}  {spilled:>7}  {shared:>13}"
