"""Compiles the attention kernels without a GPU, and finds out which GPU resources each kernel needs.

Triton's package contains the whole compiler, down to machine code. Only running a kernel needs a GPU.
The compiler decides how many registers and how much shared memory the machine code needs, and whether
registers are spilled. So kernels that spill or do not fit can be found on any machine.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
import triton
import triton.knobs
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from minipaged.bench.kernel_resources import TARGETS, Compiled
from minipaged.errors import ConfigError
from minipaged.triton_kernels.cache import COPY_TILE, copy_kernel, write_kernel
from minipaged.triton_kernels.decode import decode_kernel
from minipaged.triton_kernels.decode_split import decode_part_kernel, merge_kernel
from minipaged.triton_kernels.gpu import Resources
from minipaged.triton_kernels.prefill import prefill_kernel
from minipaged.triton_kernels.setup import INTERPRET
from minipaged.triton_kernels.softmax import dot_dtype
from minipaged.triton_kernels.split_rule import MAX_SPLITS
from minipaged.triton_kernels.tiles import Tiles, decode_tiles, prefill_tiles

KernelName = Literal["write_kv", "copy_blocks", "decode", "decode_part", "merge", "prefill"]
KERNELS: tuple[KernelName, ...] = get_args(KernelName)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
HEAD_DIMS = (64, 80, 96, 128, 256)
GROUPS = (1, 2, 3, 4, 5, 6, 7, 8)
BLOCK_SIZES = (16, 32, 64, 128)
NUM_KV_HEADS = 8
_POINTERS = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}
_POINTERS |= {torch.int32: "*i32", torch.int64: "*i64"}


@dataclass(frozen=True)
class Variant:
    """One kernel, as it is launched on one GPU for one model.

    Attributes:
        target: the GPU, a key of `TARGETS`.
        group: query heads for each KV head.
        arguments: the arguments in the kernel's order. A dtype stands for a tensor of that dtype, and a
            number stands for itself.
        constants: the `tl.constexpr` arguments.
        tiles: the tiles, if it is an attention kernel.
    """

    name: KernelName
    target: str
    dtype: torch.dtype
    head_dim: int
    group: int
    block_size: int
    kernel: JITFunction
    arguments: tuple[torch.dtype | int | float, ...]
    constants: Mapping[str, int | tl.dtype]
    tiles: Tiles | None = None


def variants(
    names: Sequence[KernelName] = KERNELS,
    dtypes: Sequence[torch.dtype] = DTYPES,
    head_dims: Sequence[int] = HEAD_DIMS,
    groups: Sequence[int] = (4,),
    block_sizes: Sequence[int] = (16,),
    targets: Sequence[str] = tuple(TARGETS),
) -> Iterator[Variant]:
    """All combinations of the arguments. Each kernel is as a model with 8 KV heads launches it."""
    for case in itertools.product(names, targets, dtypes, head_dims, groups, block_sizes):
        yield make_variant(*case)


def compile_variant(variant: Variant) -> Compiled:
    """Compile a kernel for its GPU.

    Raises:
        ConfigError: this process interprets Triton's kernels.
        Exception: Triton's compiler, or the assembler, cannot compile the kernel.
    """
    if not isinstance(variant.kernel, JITFunction):
        raise ConfigError(
            f"kernels that Triton interprets cannot be compiled: start Python without {INTERPRET} in its "
            "environment, and before any engine has set this variable"
        )
    signature: dict[str, str] = {}
    attributes: dict[tuple[int], list[list[str | int]]] = {}
    constants: dict[str, object] = dict(variant.constants)
    parameters = variant.kernel.params
    for i, argument in enumerate(variant.arguments):
        name, divisible = parameters[i].name, True
        if isinstance(argument, torch.dtype):
            signature[name] = _POINTERS[argument]
        elif isinstance(argument, float):
            signature[name], divisible = "fp32", False
        else:
            signature[name] = "i32" if argument < 2**31 else "i64"
            divisible = argument % 16 == 0
        if divisible and not parameters[i].do_not_specialize:  # as Triton does at a launch
            attributes[(i,)] = [["tt.divisibility", 16]]
    signature |= dict.fromkeys(variant.constants, "constexpr")
    chip = variant.target.removeprefix("sm_")
    is_nvidia = chip != variant.target
    options: dict[str, int] = {"enable_fp_fusion": True}
    if variant.tiles is not None:
        options |= {"num_warps": variant.tiles.num_warps, "num_stages": variant.tiles.num_stages}
    compiled = triton.compile(
        ASTSource(variant.kernel, signature, constants, attributes),
        target=GPUTarget("cuda", int(chip), 32) if is_nvidia else GPUTarget("hip", chip, 64),
        options=options,
    )
    code = compiled.asm
    registers, spill_bytes = (
        registers_and_spills(code["cubin"]) if is_nvidia else _in_assembly(code["amdgcn"])
    )
    metadata = compiled.metadata
    needs = Resources(metadata.num_warps * metadata.warp_size, registers, metadata.shared)
    return Compiled(needs, spill_bytes, code["ttir"], code["ttgir"])


def registers_and_spills(cubin: bytes) -> tuple[int, int]:
    """How many registers and bytes of stack machine code needs, read by the CUDA toolkit's `cuobjdump`.

    These kernels use the stack only for spilled registers.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return _two_numbers(r"REG:(\d+) STACK:(\d+)", text)


def _in_assembly(amdgcn: str) -> tuple[int, int]:
    """The same two numbers for the code of an AMD GPU, read from its assembly."""
    bytes_, registers = _two_numbers(r"\.private_segment_fixed_size: (\d+).*\.vgpr_count: +(\d+)", amdgcn)
    return registers, bytes_


def _two_numbers(pattern: str, text: str) -> tuple[int, int]:
    match = re.search(pattern, text, re.DOTALL)
    if match is None:
        raise RuntimeError(f"the compiler's tools did not say which resources the kernel needs: {text}")
    return int(match[1]), int(match[2])


def make_variant(
    name: KernelName, target: str, dtype: torch.dtype, head_dim: int, group: int, block_size: int
) -> Variant:
    """One kernel as a model with 8 KV heads launches it."""
    case = (name, target, dtype, head_dim, group, block_size)
    num_heads = NUM_KV_HEADS * group
    row, kv_row = num_heads * head_dim, NUM_KV_HEADS * head_dim  # numbers in one token's queries, in its keys
    rows = (row, head_dim)  # the strides of queries and outputs
    block = block_size * kv_row
    cache = (2**20 * block, block, kv_row, head_dim)  # the strides of the cache, with 2 ** 20 blocks
    table = 7  # any width
    int32, int64, float32 = torch.int32, torch.int64, torch.float32
    rule = prefill_tiles if name == "prefill" else decode_tiles
    tiles = rule(group, head_dim, dtype, TARGETS[target])
    dims: dict[str, int | tl.dtype] = {"HEAD_DIM": head_dim, "PADDED_DIM": tiles.padded_dim}
    shape = {"GROUP": group, "ROWS": tiles.rows, "BLOCK_SIZE": block_size, "TILE": tiles.tokens}
    match name:
        case "write_kv":
            arguments = (dtype, dtype, dtype, int64, *cache, kv_row, head_dim, kv_row, head_dim)
            constants: dict[str, int | tl.dtype] = {"NUM_KV_HEADS": NUM_KV_HEADS, "HEAD_DIM": head_dim}
            constants |= {"BLOCK_SIZE": block_size, "PADDED": triton.next_power_of_2(kv_row)}
            return Variant(*case, write_kernel, arguments, constants)
        case "copy_blocks":
            arguments = (dtype, int64, cache[0], block)
            return Variant(*case, copy_kernel, arguments, {"TILE": COPY_TILE})
        case "decode":
            arguments = (dtype, dtype, dtype, int32, int32, 1.0, *rows, *rows, *cache, table)
            kernel = decode_kernel
        case "decode_part":
            arguments = (dtype, float32, float32, dtype, int32, int32, 1.0, 8, *rows, *cache, table)
            kernel = decode_part_kernel
        case "merge":
            arguments = (float32, float32, dtype, 8, *rows)
            constants = dims | {"PADDED_SPLITS": MAX_SPLITS}
            return Variant(*case, merge_kernel, arguments, constants)
        case "prefill":
            tensors = (dtype, dtype, dtype, int32, int32, int32)
            arguments = (*tensors, 1.0, 3, *rows, *rows, *cache, table)
            kernel = prefill_kernel
    return Variant(*case, kernel, arguments, dims | shape | {"DOT_DTYPE": dot_dtype(dtype)}, tiles)
