"""Devices are found by name, and have rates that make sense."""

from __future__ import annotations

import pytest

from minipaged.errors import ConfigError
from minipaged.sim.device import DEVICES, Device, find_device


def test_devices_are_found_by_name() -> None:
    assert all(find_device(device.name.lower()) is device for device in DEVICES)
    with pytest.raises(ConfigError, match="'A99' is not a known device: A100-40GB"):
        find_device("A99")


def test_efficiency_slows_memory_and_arithmetic_and_nothing_else() -> None:
    half = find_device("H100").at_efficiency(0.5)
    assert (half.memory_bytes_per_second, half.flops) == (1675e9, 494.5e12)
    assert half.host_bytes_per_second == find_device("H100").host_bytes_per_second


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_an_efficiency_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="above 0 and at most 1"):
        find_device("H100").at_efficiency(share)


def test_a_device_without_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        Device("none", 0, 1.0, 1.0, 1.0, 1.0)
