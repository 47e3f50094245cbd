"""The GGUF container: its metadata, and the position of each tensor.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The file consists of a header, key-value
pairs, the name, shape, number format and offset of each tensor, and then the tensors' aligned bytes. All
numbers are little-endian.

The `gguf` package has a reader too, but it makes a NumPy array for every string. For a vocabulary of 50,000
tokens it takes seconds; this reader takes a fraction of a second.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from minipaged.errors import WeightsError

GgufValue = int | float | bool | str | list["GgufValue"]

# The struct code of each GGUF value type, by the type's number. Type 8 is a string, and type 9 is an array.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True)
class GgufTensor:
    """One tensor in the file.

    Attributes:
        shape: rows first, as in torch. The file has the reverse order.
        kind: the number format, such as Q4_1.
        start: position of the first byte in the file.
        size: number of bytes.
    """

    shape: tuple[int, ...]
    kind: gguf.GGMLQuantizationType
    start: int
    size: int


_UNREADABLE = (struct.error, IndexError, KeyError, OverflowError, ValueError, OSError, RecursionError)


class GgufFile:
    """An open GGUF file. Its bytes are mapped, not loaded.

    Attributes:
        path: the file's path.
        metadata: all key-value pairs.
        tensors: format and position of each tensor, by its name in the file.

    Raises:
        WeightsError: the file is not a GGUF file of version 2 or 3, or it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, GgufValue] = {}
        self.tensors: dict[str, GgufTensor] = {}
        try:
            # Copy-on-write, because torch needs writable arrays. Nothing is written to the file.
            self._bytes = np.memmap(path, dtype=np.uint8, mode="c")
            self._parse(_Cursor(self._bytes.data))
        except _UNREADABLE as error:
            if isinstance(error, WeightsError):
                raise
            raise WeightsError(f"{path} is not a readable GGUF file: {error}") from error

    def data(self, tensor: GgufTensor) -> np.ndarray:
        """A tensor's bytes, uint8 [rows, bytes per row], as a view of the file. A vector is one row."""
        flat = self._bytes[tensor.start : tensor.start + tensor.size]
        return flat.reshape(tensor.shape[0] if len(tensor.shape) > 1 else 1, -1)

    def token_id(self, name: str) -> int | None:
        """The id that the tokenizer's metadata give for `bos`, `eos` or a similar name, if there is one."""
        value = self.metadata.get(f"tokenizer.ggml.{name}_token_id")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _parse(self, cursor: _Cursor) -> None:
        if cursor.take(4) != b"GGUF":
            raise WeightsError(f"{self.path} is not a GGUF file: it does not begin with 'GGUF'.")
        version = cursor.scalar("I")
        if version not in (2, 3):
            raise WeightsError(f"{self.path} is GGUF version {version}. Supported: 2 and 3, little-endian.")
        num_tensors, num_pairs = int(cursor.scalar("Q")), int(cursor.scalar("Q"))
        for _ in range(num_pairs):
            key = cursor.string()
            self.metadata[key] = cursor.value(int(cursor.scalar("I")))
        found: list[tuple[str, tuple[int, ...], gguf.GGMLQuantizationType, int]] = []
        for _ in range(num_tensors):
            name = cursor.string()
            dimensions = [int(cursor.scalar("Q")) for _ in range(int(cursor.scalar("I")))]
            kind = gguf.GGMLQuantizationType(int(cursor.scalar("I")))
            found.append((name, tuple(reversed(dimensions)), kind, int(cursor.scalar("Q"))))
        alignment = self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise WeightsError(f"{self.path} has an alignment of {alignment!r}.")
        base = -(-cursor.position // alignment) * alignment
        for name, shape, kind, offset in found:
            block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
            if not 1 <= len(shape) <= 2 or shape[-1] % block:
                raise WeightsError(f"{self.path} holds {name} as {kind.name} {list(shape)}, which cannot be.")
            size = math.prod(shape) // block * block_bytes
            if base + offset + size > len(self._bytes):
                raise WeightsError(f"{self.path} ends before {name} does: it is truncated.")
            self.tensors[name] = GgufTensor(shape, kind, base + offset, size)


class _Cursor:
    """Reads the file's values one after the other."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self.position = 0

    def take(self, count: int) -> bytes:
        taken = self._buffer[self.position : self.position + count]
        if len(taken) < count:
            raise IndexError("it is truncated")
        self.position += count
        return bytes(taken)

    def scalar(self, code: str) -> int | float | bool:
        (value,) = struct.unpack_from(f"<{code}", self._buffer, self.position)
        self.position += struct.calcsize(f"<{code}")
        return value

    def string(self) -> str:
        return self.take(int(self.scalar("Q"))).decode("utf-8", errors="replace")

    def value(self, kind: int) -> GgufValue:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalar(_SCALARS[kind])
        item_kind, count = int(self.scalar("I")), int(self.scalar("Q"))
        if item_kind in (_STRING, _ARRAY):
            return [self.value(item_kind) for _ in range(count)]
        code = f"<{count}{_SCALARS[item_kind]}"
        return list(struct.unpack(code, self.take(struct.calcsize(code))))
