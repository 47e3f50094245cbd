"""Counts what a step would launch on a GPU. No kernel runs, so tensors of the device `meta` will do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

ALLOCATE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}


class Launches(TorchDispatchMode):
    """Lists the operations that launch kernels, all but views and allocations, and the kernels of Triton."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        with self:  # an operation that is made of others counts as those
            result = func.decompose(*args, **(kwargs or {}))
        if result is not NotImplemented:
            return result
        name = func.overloadpacket.__name__
        if not func.is_view and name not in ALLOCATE:
            self.names.append(name)
        return func(*args, **(kwargs or {}))

    def replace_kernels(
        self, monkeypatch: pytest.MonkeyPatch, kernels: Mapping[ModuleType, Sequence[str]]
    ) -> None:
        """Put counters in the place of these kernels."""
        for module, names in kernels.items():
            for name in names:
                monkeypatch.setattr(module, name, _Counter(name, self.names))


class _Counter:
    def __init__(self, name: str, names: list[str]) -> None:
        self._name, self._names = name, names

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *args, **options: self._names.append(self._name)

    def warmup(self, *args: object, **options: object) -> None:
        """Compile the kernel: there is none, and nothing is launched."""
