"""Which attention an engine runs with, and what writes the cache that it reads."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import torch

from minipaged.attention.metadata import AttentionFn
from minipaged.attention.reference import reference_attention
from minipaged.config import AttentionBackend
from minipaged.errors import ConfigError
from minipaged.kv import cache
from minipaged.kv.cache import CopyBlocks, WriteKV
from minipaged.triton_kernels.setup import prepare_triton


def select_attention(backend: AttentionBackend, device: torch.device) -> AttentionFn:
    """The attention for a backend's name; `"auto"` takes the fastest that the device has.

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
        prepare_triton(device)  # before the import, which is where Triton decides how kernels run
        from minipaged.triton_kernels.attention import TritonAttention

        return TritonAttention.on(device)
    return reference_attention


@dataclass(frozen=True)
class CacheFunctions:
    """What writes to the cache: new keys and values, and copies of blocks."""

    write_kv: WriteKV
    copy_blocks: CopyBlocks


def select_cache_functions(backend: AttentionBackend, device: torch.device) -> CacheFunctions:
    """What goes with a backend's attention: kernels with Triton's, a loop with the CPU's, else PyTorch's own
    indexing.

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
    """A backend's name; for `"auto"` that of the fastest that the device has."""
    if backend != "auto":
        return backend
    if device.type == "cpu":
        return "cpu"
    return "triton" if device.type == "cuda" and find_spec("triton") is not None else "reference"
