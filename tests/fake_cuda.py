"""CUDA devices, made up: what `torch.cuda` says of them, and which of them is current.

The tensors of one are those of `fake_device.FakeDevice`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch

from tests.fake_device import FakeDevice

GIB = 2**30


@dataclass
class FakeCuda:
    """A machine with GPUs.

    Attributes:
        current: the index of the current device.
        registered: the addresses of memory that the driver was asked to pin.
        streams: how many streams were made.
        captures: for each graph, the stream on which it was captured, and the device that was current.
        free: bytes of a device that the driver calls free.
        held: bytes of a device that PyTorch keeps for later. `empty_cache` makes them free.
        capability: the compute capability of all of them.
    """

    current: int = 0
    registered: list[range] = field(default_factory=list)
    streams: int = 0
    captures: list[tuple[object, int]] = field(default_factory=list)
    free: int = 8 * GIB
    held: int = 0
    capability: tuple[int, int] = (9, 0)

    def device(self, device: torch.device | int) -> CurrentDevice:
        """`torch.cuda.device`."""
        index = device if isinstance(device, int) else device.index
        assert index is not None, "a device without an index is any device"
        return CurrentDevice(self, index)

    def stream(self, device: torch.device | None = None) -> SimpleNamespace:
        """`torch.cuda.Stream`."""
        self.streams += 1
        index = self.current if device is None else device.index
        return SimpleNamespace(device=index, number=self.streams, wait_stream=lambda other: None)

    @contextmanager
    def use_stream(self, stream: SimpleNamespace) -> Iterator[None]:
        """`torch.cuda.stream`: it makes the stream's device the current one."""
        with self.device(stream.device):
            yield

    @contextmanager
    def graph(self, graph: object, pool: object, stream: SimpleNamespace) -> Iterator[None]:
        """`torch.cuda.graph`, which shall be given a stream."""
        assert stream.device == self.current, "captured on a stream of another device"
        self.captures.append((stream, self.current))
        yield

    def empty_cache(self) -> None:
        self.free, self.held = self.free + self.held, 0

    def register(self, address: int, num_bytes: int, flags: int) -> int:
        """`cudaHostRegister`."""
        self.registered.append(range(address, address + num_bytes))
        return 0

    def unregister(self, address: int) -> int:
        """`cudaHostUnregister`."""
        [found] = [each for each in self.registered if each.start == address]
        self.registered.remove(found)
        return 0


class CurrentDevice:
    """Makes a device the current one, as often as wanted."""

    def __init__(self, machine: FakeCuda, index: int) -> None:
        self._machine = machine
        self._index = index
        self._before = 0

    def __enter__(self) -> None:
        self._before, self._machine.current = self._machine.current, self._index

    def __exit__(self, *of_error: object) -> None:
        self._machine.current = self._before


class FakeGraph:
    """`torch.cuda.CUDAGraph`. It replays nothing."""

    def replay(self) -> None: ...


@contextmanager
def fake_cuda(monkeypatch: pytest.MonkeyPatch, **changes: object) -> Iterator[tuple[FakeCuda, FakeDevice]]:
    """A machine with two GPUs. The current one is device 0; the `FakeDevice` names device 1 first.

    Args:
        monkeypatch: for `torch.cuda`.
        changes: of the fields of `FakeCuda`.
    """
    machine = FakeCuda(**changes)  # pyright: ignore[reportArgumentType]
    runtime = SimpleNamespace(
        cudaHostRegister=machine.register,
        cudaHostUnregister=machine.unregister,
        cudaError=SimpleNamespace(success=0),
    )
    of_an_a100 = SimpleNamespace(
        major=8,
        multi_processor_count=4,
        regs_per_multiprocessor=65_536,
        max_threads_per_multi_processor=2048,
        shared_memory_per_multiprocessor=164 * 1024,
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=163 * 1024,
    )
    stand_ins: dict[str, Callable[..., object]] = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "current_device": lambda: machine.current,
        "_lazy_init": lambda: None,
        "device": machine.device,
        "get_device_capability": lambda device=None: machine.capability,
        "get_device_name": lambda device=None: "Some GPU",
        "get_device_properties": lambda device=None: of_an_a100,
        "mem_get_info": lambda device=None: (machine.free, 16 * GIB),
        "empty_cache": machine.empty_cache,
        "synchronize": lambda device=None: None,
        "reset_peak_memory_stats": lambda device=None: None,
        "memory_reserved": lambda device=None: 0,
        "max_memory_reserved": lambda device=None: 1000,
        "cudart": lambda: runtime,
        "Stream": machine.stream,
        "stream": machine.use_stream,
        "current_stream": lambda device=None: SimpleNamespace(wait_stream=lambda other: None),
        "graph_pool_handle": lambda: (0, 1),
        "CUDAGraph": FakeGraph,
        "graph": machine.graph,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    with FakeDevice(torch.device("cuda", 1), torch.device("cuda", 0)) as tensors:
        tensors.registered = machine.registered
        yield machine, tensors
