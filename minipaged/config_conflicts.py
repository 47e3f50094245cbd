"""Settings of which each is possible, but not together."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from minipaged.baseline.region_allocator import RegionAllocatorName
from minipaged.errors import ConfigError

if TYPE_CHECKING:
    from minipaged.config import EngineConfig
    from minipaged.parts import Parts


def check_conflicts(config: EngineConfig) -> None:
    """Refuse settings that contradict each other.

    Raises:
        ConfigError: two that do, and what to do about it.
    """
    layout = config.kv_layout
    if layout != "contiguous":
        for name, default in (("reserve", "max"), ("region_allocator", "first_fit")):
            value = getattr(config, name)
            if value != default:
                raise ConfigError(
                    f"{name}={value!r} is about reserved regions: set kv_layout='contiguous' as well, "
                    f"instead of {layout!r}"
                )
    if config.enable_prefix_caching and config.fork_mode == "copy":
        raise ConfigError(
            "enable_prefix_caching=True shares blocks between requests, and fork_mode='copy' is for an "
            "engine that shares none: turn one of them off"
        )
    if config.preemption_mode == "swap" and config.fork_mode == "copy":
        raise ConfigError(
            "preemption_mode='swap' brings blocks back shared as they were, and fork_mode='copy' is for an "
            "engine that shares none: use preemption_mode='recompute', or fork_mode='share'"
        )
    if layout != "paged":
        _check_unpaged(config)
    _check_parts(config)


def _check_unpaged(config: EngineConfig) -> None:
    layout = config.kv_layout
    if config.enable_prefix_caching:
        raise ConfigError(
            f"enable_prefix_caching=True needs blocks that can be found again, and kv_layout={layout!r} has "
            "none: leave it out, or set kv_layout='paged'"
        )
    if config.preemption_mode == "swap":
        raise ConfigError(
            f"preemption_mode='swap' moves blocks, and kv_layout={layout!r} has none and preempts nobody: "
            "leave it out, or set kv_layout='paged'"
        )
    if config.attention_backend not in ("auto", "reference"):
        raise ConfigError(
            f"attention_backend={config.attention_backend!r} reads block tables, and kv_layout={layout!r} "
            "has none: use 'auto' or 'reference'"
        )


_OF_REGIONS = ("write_region", "read_region", "attend_region")
_OF_ALLOCATORS: dict[str, RegionAllocatorName] = {
    "allocate_first_fit": "first_fit",
    "free_first_fit": "first_fit",
    "allocate_buddy": "buddy",
    "free_buddy": "buddy",
}
_OF_THE_MEMORY_PLAN = ("bytes_per_token", "num_blocks_that_fit")
# All other parts are of the paged layout.


def unused_parts(config: EngineConfig, parts: Parts) -> dict[str, str]:
    """The parts, other than the engine's own, that an engine of these settings would never call.

    Args:
        config: the settings; their own parts do not matter.
        parts: those in question.

    Returns:
        For each the settings that call it, in words.
    """
    found: dict[str, str] = {}
    for part in fields(parts):
        wanted = _wanted(part.name, config)
        if wanted is not None and getattr(parts, part.name) is not part.default:
            found[part.name] = wanted
    return found


def _wanted(part: str, config: EngineConfig) -> str | None:
    """What to set so that a part is called; `None` if it is as things are."""
    layout = config.kv_layout
    if part in _OF_THE_MEMORY_PLAN:
        return "kv_layout='paged' or 'contiguous'" if layout == "none" else None
    if part in _OF_ALLOCATORS:
        allocator = _OF_ALLOCATORS[part]
        if (layout, config.region_allocator) == ("contiguous", allocator):
            return None
        return f"kv_layout='contiguous' and region_allocator={allocator!r}"
    if part in _OF_REGIONS:
        return None if layout == "contiguous" else "kv_layout='contiguous'"
    if layout != "paged":
        return "kv_layout='paged'"
    if part == "hash_function" and not config.caches_prefixes:
        return "enable_prefix_caching=True"
    if part == "capture" and (config.enforce_eager or config.attention_backend not in ("auto", "triton")):
        return "enforce_eager=False and attention_backend='triton'"
    return None


def _check_parts(config: EngineConfig) -> None:
    unused = {} if config.parts is None else unused_parts(config, config.parts)
    if unused:
        needs = "; ".join(f"{part} needs {wanted}" for part, wanted in unused.items())
        raise ConfigError(
            f"parts has something that an engine of these settings never calls: {needs}. Change the "
            "settings, or leave it out"
        )
