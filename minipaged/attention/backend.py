"""Choosing the attention function of an engine, and the functions that write its KV cache."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import torch

from minipaged.attention.metadata import AttentionFn
from minipaged.attention.reference import reference_attention
from minipaged.choices import AttentionBackend
from minipaged.errors import ConfigError
from minipaged.kv import cache
from minipaged.kv.cache import CopyBlocks, WriteKV
from minipaged.triton_kernels.setup import prepare_triton


def select_attention(backend: AttentionBackend, device: torch.device) -> AttentionFn:
    """The attention function of a backend. `"auto"` means the fastest one that the device supports.

    Raises:
        ConfigError: the backend does not run on the device.
    """
    backend = resolve_backend(backend, device)
    if backend == "cpu":
        if device.type != "cpu":
            raise ConfigError(f"attention_backend='cpu' needs device='cpu', not {str(device)!r}; use 'auto'")
        from minipaged.cpu.attention.attention import CpuAttention  # imports numba

        return CpuAttention()
    if backend == "triton":
        prepare_triton(device)  # before the import: Triton decides at import how it runs kernels
        from minipaged.triton_kernels.attention import TritonAttention
        from minipaged.triton_kernels.gpu import Gpu

        return TritonAttention(Gpu.of(device))
    return reference_attention


def check_attention(
    backend: AttentionBackend, device: torch.device, *, group: int, head_dim: int, dtype: torch.dtype
) -> None:
    """Check, before any kernel runs, that a backend's kernels fit on the device for a model's heads.

    Args:
        backend: the backend.
        device: where it computes.
        group: query heads for each KV head.
        head_dim: the head dimension.
        dtype: the dtype of the cache.

    Raises:
        ConfigError: one program needs more shared memory than the GPU has.
    """
    if resolve_backend(backend, device) != "triton":
        return
    prepare_triton(device)
    from minipaged.triton_kernels.gpu import Gpu
    from minipaged.triton_kernels.tiles import decode_tiles, prefill_tiles

    for tiles in (decode_tiles, prefill_tiles):
        tiles(group, head_dim, dtype, Gpu.of(device))


@dataclass(frozen=True)
class CacheFunctions:
    """The functions that write to the cache: new keys and values, and copies of blocks."""

    write_kv: WriteKV
    copy_blocks: CopyBlocks


def select_cache_functions(backend: AttentionBackend, device: torch.device) -> CacheFunctions:
    """The cache functions of a backend.

    The Triton backend has kernels for both. The CPU backend has a compiled loop for new keys and values.
    Everything else uses PyTorch's indexing.

    Raises:
        ConfigError: the backend does not run on the device.
    """
    backend = resolve_backend(backend, device)
    if backend == "cpu":
        from minipaged.cpu.attention.cache_writes import cpu_write_kv

        return CacheFunctions(cpu_write_kv, cache.copy_blocks)
    if backend == "triton":
        prepare_triton(device)
        from minipaged.triton_kernels import cache as triton_cache

        return CacheFunctions(triton_cache.write_kv, triton_cache.copy_blocks)
    return CacheFunctions(cache.write_kv, cache.copy_blocks)


def resolve_backend(backend: AttentionBackend, device: torch.device) -> AttentionBackend:
    """The backend itself, but for `"auto"` the fastest backend that the device supports."""
    if backend != "auto":
        return backend
    if device.type == "cpu":
        return "cpu"
    return "triton" if device.type == "cuda" and find_spec("triton") is not None else "reference"
