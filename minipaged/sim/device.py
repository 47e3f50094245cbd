"""Devices of the simulation: memory, bandwidths and arithmetic, as their makers' datasheets give them.

The sources are NVIDIA's datasheets: A100 Tensor Core GPU (SXM, 40 GB and 80 GB), H100 and H200 Tensor Core
GPU (SXM). Datasheets give peaks, and a real kernel reaches only part of a peak. So simulated times are lower
bounds, and simulated rates are upper bounds. The difference between two systems on the same device depends
much less on how large this part is. `Device.at_efficiency` shows how much.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from minipaged.errors import ConfigError


@dataclass(frozen=True)
class Device:
    """One accelerator.

    Attributes:
        name: its name.
        memory_bytes: its memory.
        memory_bytes_per_second: how fast it reads its memory.
        flops: dense 16-bit floating-point operations per second. A multiplication with an addition counts as
            two.
        link_bytes_per_second: bandwidth to another device of the same machine (NVLink), in each direction.
        host_bytes_per_second: bandwidth to the CPU's memory (PCIe), in each direction.

    Raises:
        ConfigError: a rate or a size is not positive.
    """

    name: str
    memory_bytes: int
    memory_bytes_per_second: float
    flops: float
    link_bytes_per_second: float
    host_bytes_per_second: float

    def __post_init__(self) -> None:
        rates = (
            self.memory_bytes,
            self.memory_bytes_per_second,
            self.flops,
            self.link_bytes_per_second,
            self.host_bytes_per_second,
        )
        if min(rates) <= 0:
            raise ConfigError(f"the sizes and rates of a device must be above 0: {self}")

    def at_efficiency(self, share: float) -> Device:
        """The same device with kernels that reach this share of both peaks, memory and arithmetic.

        Raises:
            ConfigError: the share is not above 0, or is above 1.
        """
        if not 0 < share <= 1:
            raise ConfigError(f"kernels reach a share of the peak that is above 0 and at most 1, not {share}")
        return replace(
            self, memory_bytes_per_second=self.memory_bytes_per_second * share, flops=self.flops * share
        )


_GB = 10**9
_NVLINK_3, _NVLINK_4 = 300e9, 450e9  # datasheets: 600 and 900 GB/s, both directions together
_PCIE_4, _PCIE_5 = 32e9, 64e9  # 16 lanes, each direction

DEVICES = (
    Device("A100-40GB", 40 * _GB, 1555e9, 312e12, _NVLINK_3, _PCIE_4),
    Device("A100-80GB", 80 * _GB, 2039e9, 312e12, _NVLINK_3, _PCIE_4),
    Device("H100", 80 * _GB, 3350e9, 989e12, _NVLINK_4, _PCIE_5),
    Device("H200", 141 * _GB, 4800e9, 989e12, _NVLINK_4, _PCIE_5),
)


def find_device(name: str) -> Device:
    """The device of this name. Case does not matter.

    Raises:
        ConfigError: there is no such device; the message lists all.
    """
    for device in DEVICES:
        if device.name.lower() == name.lower():
            return device
    raise ConfigError(f"{name!r} is not a known device: {', '.join(device.name for device in DEVICES)}")
