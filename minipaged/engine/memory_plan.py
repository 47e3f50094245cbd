"""MemoryPlan: the number of blocks in the pool and the length of the longest request, decided at start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from minipaged.baseline.buddy import BuddyAllocator
from minipaged.baseline.first_fit import FirstFitAllocator
from minipaged.baseline.region_allocator import RegionAllocator
from minipaged.config import EngineConfig
from minipaged.engine.machine import gpu_memory, usable_memory
from minipaged.errors import ConfigError
from minipaged.kv.size import (
    KVShape,
    blocks_needed,
    log_line,
    resolve_max_model_len,
    resolve_max_model_len_of_regions,
)
from minipaged.model.config import ModelConfig
from minipaged.parts import Parts

CPU_MEMORY_SHARE = 0.25
"""The default size of a CPU engine's KV cache, as a share of the memory that is free after loading the
weights. The cache is smaller if `max_num_seqs` sequences of the greatest length need less."""


@dataclass(frozen=True)
class MemoryPlan:
    """How an engine uses its memory.

    Attributes:
        num_blocks: blocks in the pool, including the null block. A contiguous cache has
            `num_blocks * block_size` slots. Without a cache it is 0.
        block_size: tokens per block.
        max_model_len: the longest prompt plus output of one request, in tokens.
        bytes_per_block: bytes of one block, in all layers.
        num_cpu_blocks: blocks of CPU memory for swapping; `None` if there is no swapping.
        device_name: `"CPU"` or `"GPU"`, for the log line.
    """

    num_blocks: int
    block_size: int
    max_model_len: int
    bytes_per_block: int
    num_cpu_blocks: int | None
    device_name: str

    @property
    def kv_cache_bytes(self) -> int:
        return self.num_blocks * self.bytes_per_block

    def __str__(self) -> str:
        """The one line that the engine logs at start."""
        if self.num_blocks == 0:
            return f"No KV cache, requests of up to {self.max_model_len:,} tokens"
        return log_line(self.num_blocks, self.block_size, self.max_model_len, self.device_name)


def plan_memory(
    config: EngineConfig,
    model: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    *,
    step_bytes: Callable[[], int] = lambda: 0,
) -> MemoryPlan:
    """Decide how many blocks there are, and how long a request may be. The weights are already loaded.

    Args:
        config: the settings.
        model: the model's shape.
        dtype: the dtype of keys and values.
        device: the device of keys and values.
        step_bytes: measures the memory that steps need in addition to weights and cache. It is called only
            on a CUDA device, and only if the settings do not give the size of the cache.

    Raises:
        ConfigError: the pool cannot hold one request of `max_model_len` tokens (the message gives the
            greatest length that fits). Or, without chunked prefill, such a request exceeds the token
            budget of a step.
    """
    shape = KVShape(model.num_layers, model.num_kv_heads, model.head_dim, dtype.itemsize)
    size = (config.parts or Parts()).bytes_per_token(shape) * config.block_size
    num_blocks = _settled_num_blocks(config, shape)
    if num_blocks is None:
        free = _free_bytes(config, device, step_bytes)
        fitting = (config.parts or Parts()).num_blocks_that_fit(free, shape, config.block_size)
        num_blocks = min(fitting, _most_useful_blocks(config, model))
    _check_room(config, device, size, num_blocks)
    return MemoryPlan(
        num_blocks=num_blocks,
        block_size=config.block_size,
        max_model_len=_max_model_len(config, model, num_blocks),
        bytes_per_block=size,
        num_cpu_blocks=_num_cpu_blocks(config, num_blocks),
        device_name="GPU" if device.type == "cuda" else "CPU",
    )


def check_before_loading(config: EngineConfig, model: ModelConfig, dtype: torch.dtype) -> None:
    """Before weights are loaded, refuse settings that `plan_memory` would refuse even with unlimited memory.

    Args:
        config, model, dtype: as in `plan_memory`.

    Raises:
        ConfigError: as in `plan_memory`.
    """
    shape = KVShape(model.num_layers, model.num_kv_heads, model.head_dim, dtype.itemsize)
    num_blocks = _settled_num_blocks(config, shape)
    if num_blocks is None:
        if config.max_model_len in ("auto", -1):
            return  # the length that fits is not known yet
        num_blocks = _most_useful_blocks(config, model)
    _max_model_len(config, model, num_blocks)


def make_region_allocator(config: EngineConfig, num_blocks: int) -> RegionAllocator:
    """The allocator of a contiguous cache, with all of its slots free."""
    parts = config.parts or Parts()
    num_slots = num_blocks * config.block_size
    if config.region_allocator == "buddy":
        return BuddyAllocator(num_slots, parts.allocate_buddy, parts.free_buddy)
    return FirstFitAllocator(num_slots, parts.allocate_first_fit, parts.free_first_fit)


def _settled_num_blocks(config: EngineConfig, shape: KVShape) -> int | None:
    """The number of blocks, if the settings alone determine it; otherwise `None`."""
    if config.kv_layout == "none":
        return 0
    if config.num_blocks is not None or config.kv_cache_memory_bytes is None:
        return config.num_blocks
    num_blocks_that_fit = (config.parts or Parts()).num_blocks_that_fit
    return num_blocks_that_fit(config.kv_cache_memory_bytes, shape, config.block_size)


def _max_model_len(config: EngineConfig, model: ModelConfig, num_blocks: int) -> int:
    longest = _longest_that_fits(config, model.max_position_embeddings, num_blocks)
    if not config.enable_chunked_prefill and config.max_num_batched_tokens < longest:
        raise ConfigError(
            f"without chunked prefill a prompt of up to {longest:,} tokens must fit into one step, but "
            f"max_num_batched_tokens is {config.max_num_batched_tokens:,}: raise it, lower max_model_len, "
            "or leave enable_chunked_prefill on"
        )
    return longest


def _longest_that_fits(config: EngineConfig, model_max: int, num_blocks: int) -> int:
    if config.kv_layout == "paged":
        return resolve_max_model_len(config.max_model_len, model_max, num_blocks, config.block_size)
    largest = model_max  # without a cache, the model alone is the limit
    if config.kv_layout == "contiguous" and num_blocks > 0:
        largest = make_region_allocator(config, num_blocks).largest_free_region
    elif config.kv_layout == "contiguous":
        largest = 0
    return resolve_max_model_len_of_regions(config.max_model_len, model_max, largest)


def _check_room(config: EngineConfig, device: torch.device, size: int, num_blocks: int) -> None:
    """Refuse a cache that is larger than the free memory, before allocating it."""
    on_cpu = _num_cpu_blocks(config, num_blocks) or 0
    if device.type == "cuda":
        free = gpu_memory(device).free
        if num_blocks * size > free:
            raise _no_room(num_blocks, size, free)
    else:
        on_cpu += num_blocks
    free = usable_memory().free
    if on_cpu * size > free:
        raise _no_room(on_cpu, size, free)


def _no_room(num_blocks: int, size: int, free: int) -> ConfigError:
    return ConfigError(
        f"{num_blocks:,} blocks of {size:,} bytes are {num_blocks * size:,} bytes, but {free:,} are free: "
        f"at most {free // size:,} blocks fit"
    )


def _num_cpu_blocks(config: EngineConfig, num_blocks: int) -> int | None:
    if config.preemption_mode != "swap":
        return None
    # The number of blocks that can be in use is always enough (paper, section 4.5).
    return num_blocks - 1 if config.num_cpu_blocks is None else config.num_cpu_blocks


def _free_bytes(config: EngineConfig, device: torch.device, step_bytes: Callable[[], int]) -> int:
    if device.type == "cuda":
        for_steps = step_bytes()
        memory = gpu_memory(device)  # read last, so that memory that `step_bytes` keeps counts as used
        used = memory.total - memory.free
        return max(0, int(memory.total * config.gpu_memory_utilization) - used - for_steps)
    return int(usable_memory().free * CPU_MEMORY_SHARE)


def _most_useful_blocks(config: EngineConfig, model: ModelConfig) -> int:
    """The number of blocks for `max_num_seqs` sequences of the greatest length, plus the null block."""
    longest = model.max_position_embeddings
    if isinstance(config.max_model_len, int) and config.max_model_len > 0:
        longest = min(longest, config.max_model_len)
    return 1 + config.max_num_seqs * blocks_needed(longest, config.block_size)
