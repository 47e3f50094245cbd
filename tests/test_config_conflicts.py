"""Settings that contradict each other are refused, and the message says what to do."""

from __future__ import annotations

import dataclasses

import pytest
from torch import Tensor

from minipaged import EngineConfig
from minipaged.attention.reference import attend_one
from minipaged.choices import KVLayoutName
from minipaged.errors import ConfigError
from minipaged.kv.prefix_hash import sha256
from minipaged.kv.size import KVShape
from minipaged.options import EngineOptions
from minipaged.parts import Parts


def _read_region(slots: Tensor, start: int, num_tokens: int) -> tuple[Tensor, Tensor]:
    raise NotImplementedError


def _bytes_per_token(shape: KVShape) -> int:
    raise NotImplementedError


def _allocate_nothing(free: list[set[int]], num_slots: int) -> int | None:
    raise NotImplementedError


def _write_kv(kv_layer: Tensor, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None:
    raise NotImplementedError


CONFLICTS: list[tuple[EngineOptions, str]] = [
    ({"reserve": "oracle"}, "kv_layout='contiguous'"),
    ({"reserve": "pow2", "kv_layout": "none"}, "kv_layout='contiguous'"),
    ({"region_allocator": "buddy"}, "kv_layout='contiguous'"),
    ({"fork_mode": "copy", "enable_prefix_caching": True}, "turn one of them off"),
    ({"kv_layout": "contiguous", "enable_prefix_caching": True}, "kv_layout='paged'"),
    ({"kv_layout": "none", "enable_prefix_caching": True}, "kv_layout='paged'"),
    ({"kv_layout": "contiguous", "preemption_mode": "swap"}, "kv_layout='paged'"),
    ({"kv_layout": "none", "preemption_mode": "swap"}, "kv_layout='paged'"),
    ({"fork_mode": "copy", "preemption_mode": "swap"}, "fork_mode='share'"),
    ({"kv_layout": "contiguous", "attention_backend": "cpu"}, "'auto' or 'reference'"),
    (
        {"kv_layout": "contiguous", "parts": Parts(hash_function=sha256)},
        "hash_function needs kv_layout='paged'",
    ),
    ({"enable_prefix_caching": False, "parts": Parts(hash_function=sha256)}, "enable_prefix_caching=True"),
    ({"parts": Parts(attend_region=attend_one)}, "attend_region needs kv_layout='contiguous'"),
    ({"kv_layout": "none", "parts": Parts(read_region=_read_region)}, "read_region needs"),
    ({"kv_layout": "none", "parts": Parts(bytes_per_token=_bytes_per_token)}, "'paged' or 'contiguous'"),
    (
        {"kv_layout": "contiguous", "parts": Parts(allocate_buddy=_allocate_nothing, write_kv=_write_kv)},
        "allocate_buddy needs kv_layout='contiguous' and region_allocator='buddy'; write_kv needs "
        "kv_layout='paged'",
    ),
]


@pytest.mark.parametrize(("options", "message"), CONFLICTS)
def test_conflicts(options: EngineOptions, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineConfig(**options)


@pytest.mark.parametrize(
    "options",
    [
        EngineOptions(kv_layout="none", parts=Parts()),
        EngineOptions(kv_layout="contiguous", parts=Parts(attend_region=attend_one)),
        EngineOptions(
            kv_layout="contiguous", region_allocator="buddy", parts=Parts(allocate_buddy=_allocate_nothing)
        ),
        EngineOptions(kv_layout="contiguous", parts=Parts(bytes_per_token=_bytes_per_token)),
        EngineOptions(parts=Parts(hash_function=sha256, write_kv=_write_kv)),
    ],
)
def test_parts_that_the_layout_has(options: EngineOptions) -> None:
    assert EngineConfig(**options).parts is options.get("parts")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kv_layout", "paged, contiguous, none"),
        ("reserve", "max, pow2, oracle"),
        ("region_allocator", "first_fit, buddy"),
        ("batching", "continuous, static"),
        ("fork_mode", "share, copy"),
        ("preemption_mode", "recompute, swap, never"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    options = {name: "other"}
    with pytest.raises(ConfigError, match=f"{name} must be one of {message}"):
        EngineConfig(**options)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (EngineOptions(), True),
        (EngineOptions(kv_layout="contiguous"), False),
        (EngineOptions(kv_layout="none"), False),
        (EngineOptions(fork_mode="copy"), False),
        (EngineOptions(enable_prefix_caching=False), False),
    ],
)
def test_prefix_caching_is_on_where_blocks_are_shared(options: EngineOptions, expected: bool) -> None:
    assert EngineConfig(**options).caches_prefixes is expected


@pytest.mark.parametrize("layout", ["contiguous", "none"])
def test_a_changed_copy_decides_anew_whether_it_caches(layout: KVLayoutName) -> None:
    unpaged = dataclasses.replace(EngineConfig(), kv_layout=layout)
    assert not unpaged.caches_prefixes
    assert dataclasses.replace(unpaged, kv_layout="paged").caches_prefixes
    assert not dataclasses.replace(EngineConfig(), fork_mode="copy").caches_prefixes
