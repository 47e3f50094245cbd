"""A second device, made up: its tensors are on the CPU, and say that they are on `mps` or `cuda`.

Code that asks for the device of a tensor takes its way for that device. What a real device refuses, or
answers with numbers that are not there yet, is refused here at each operation of PyTorch:

- tensors of two devices in one operation (a copy between devices, and a single number, are allowed);
- float64 on mps;
- a copy that is not waited for, from or into memory of the CPU that is not pinned and kept.

Each copy from the device to the CPU is noted, since it makes the host wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakSet

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

COPIES = {"_to_copy", "copy_"}
"""Operations that may take tensors of two devices."""
INSIDE = torch.device("meta")
"""The device that C++ sees."""
PINS = {"pin_memory", "_pin_memory"}


class WrongDeviceError(Exception):
    """What a real device refuses, or answers wrongly."""


class OnDevice(Tensor):
    """A tensor of the device.

    Attributes:
        inner: has its numbers, on the CPU.
        claimed: the device that it says it is on.
    """

    inner: Tensor  # pyright: ignore[reportIncompatibleMethodOverride]
    claimed: torch.device

    @staticmethod
    def __new__(cls, inner: Tensor, claimed: torch.device) -> OnDevice:
        # PyTorch's part in C++ looks for the device's own part, which is not there. It finds one for meta. So
        # only Python sees the claim.
        tensor = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=INSIDE,
        )
        tensor.inner, tensor.claimed = inner, claimed
        return tensor

    @property
    def device(self) -> torch.device:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.claimed

    def __repr__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"OnDevice({self.inner!r}, {self.claimed})"

    @classmethod
    def __torch_dispatch__(
        cls, func: object, types: object, args: object = (), kwargs: object = None
    ) -> object:
        raise WrongDeviceError(f"{func}, after the device has gone")


class FakeDevice(TorchDispatchMode):
    """While it is active, the devices exist.

    Args:
        devices: of one type, each with its index.

    Attributes:
        device: the first of them.
        reads: the shapes of the tensors that were copied from the device to the CPU.
        registered: addresses of memory that was pinned without PyTorch.
    """

    def __init__(self, *devices: torch.device) -> None:
        super().__init__()
        self.device = devices[0]
        self._devices = devices
        self.reads: list[tuple[int, ...]] = []
        self.registered: list[range] = []
        self._before: list[bool] = []
        self._pinned: WeakSet[torch.UntypedStorage] = WeakSet()

    def __enter__(self) -> FakeDevice:
        # `torch.tensor` shall make its tensor on the CPU, and then copy it.
        self._before.append(torch._C._only_lift_cpu_tensors())
        torch._C._set_only_lift_cpu_tensors(True)
        super().__enter__()
        return self

    def __exit__(self, *of_error: object) -> None:
        super().__exit__(*of_error)
        torch._C._set_only_lift_cpu_tensors(self._before.pop())

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        name = func.overloadpacket.__name__
        if name == "to":  # of many forms; in parts it is `_to_copy`
            with self:
                return func.decompose(*args, **(kwargs or {}))
        options = dict(kwargs or {})
        tensors = [each for each in tree_leaves((args, options)) if isinstance(each, Tensor)]
        target = self._target_of(name, tensors, options)
        self._check(name, tensors, target, waits=not _is_not_waited_for(args, options))
        pins = bool(options.pop("pin_memory", False)) or name in PINS
        if "device" in options:
            options["device"] = torch.device("cpu")
        inside = (tree_map(_inner, args), tree_map(_inner, options))
        result = tensors[0].clone() if name in PINS else func(*inside[0], **inside[1])
        if pins:
            assert isinstance(result, Tensor)
            self._pinned.add(result.untyped_storage())
        # An operation in place gives the tensor back that it was given.
        given = {id(_inner(each)): each for each in tensors}
        return tree_map(
            lambda each: given[id(each)] if id(each) in given else self._placed(each, target), result
        )

    def _target_of(self, name: str, tensors: Sequence[Tensor], options: Mapping[str, object]) -> torch.device:
        """The device of an operation's result."""
        wanted = options.get("device")
        if isinstance(wanted, torch.device):
            if wanted.type == "cpu":
                return wanted
            if wanted.type == "mps" == self.device.type:
                return self.device  # there is but one, while "cuda" is any of several
            if wanted in self._devices:
                return wanted
            if wanted != INSIDE:
                raise WrongDeviceError(f"{name} on {wanted}, where {self._devices} are in use")
        if name == "copy_":
            return tensors[0].device
        shaped = {each.device for each in tensors if each.dim() > 0}
        return next(iter(shaped or {each.device for each in tensors}), torch.device("cpu"))

    def _check(self, name: str, tensors: Sequence[Tensor], target: torch.device, *, waits: bool) -> None:
        if name == "_local_scalar_dense" and tensors[0].device in self._devices:
            self.reads.append(())
        if name not in COPIES:
            others = [each for each in tensors if each.device != target]
            if any(each.dim() > 0 or each.device != torch.device("cpu") for each in others):
                found = [(str(each.device), tuple(each.shape)) for each in tensors]
                raise WrongDeviceError(f"{name} of tensors of two devices: {found}")
            return
        source = tensors[-1]
        if source.device == target:
            return
        of_host = source if target in self._devices else tensors[0]
        if not waits and not self._is_pinned(of_host):
            raise WrongDeviceError(f"{name} is not waited for, and the host's memory is not pinned and kept")
        if source.device in self._devices and waits:
            self.reads.append(tuple(source.shape))

    def _is_pinned(self, tensor: Tensor) -> bool:
        if tensor.device.type != "cpu":
            return False
        address = tensor.untyped_storage().data_ptr()
        return tensor.untyped_storage() in self._pinned or any(address in each for each in self.registered)

    def _placed(self, result: object, target: torch.device) -> object:
        if not isinstance(result, Tensor) or isinstance(result, OnDevice) or target.type == "cpu":
            return result
        if target.type == "mps" and result.dtype == torch.float64:
            raise WrongDeviceError("mps has no float64")
        # A view of a tensor that was made outside of inference mode is no inference tensor either. PyTorch
        # counts on that.
        with torch.inference_mode(False):
            return OnDevice(result, target)


def _is_not_waited_for(args: Sequence[object], options: Mapping[str, object]) -> bool:
    """Whether a copy of any kind is `non_blocking`."""
    return bool(options.get("non_blocking")) or (len(args) > 2 and args[2] is True)


def _inner(value: object) -> object:
    return value.inner if isinstance(value, OnDevice) else value
