"""Reads a trace file up to its last whole line."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from minipaged.errors import TraceError
from minipaged.events import EngineStarted, Event
from minipaged.trace.codec import decode
from minipaged.trace.writer import CRC_LENGTH, SCHEMA, VERSION

GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Header:
    """The first line of a trace file."""

    engine: EngineStarted
    title: str
    has_texts: bool


@dataclass(frozen=True)
class TraceLines:
    """A trace file.

    Attributes:
        batches: the events of each line.
        note: a sentence that says what is missing at the end; `None` if the trace was closed.
        damage: a sentence that names the first line that was changed after it was written; `None` if no line
            was changed.
    """

    header: Header
    batches: tuple[tuple[Event, ...], ...]
    note: str | None
    damage: str | None


def read_lines(path: str | os.PathLike[str]) -> TraceLines:
    """Read a trace file up to its last whole line.

    Raises:
        TraceError: there is no such file, it is not a trace, it has another version, or a line cannot be
            read.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error.strerror}") from None
    if content.startswith(GZIP_MAGIC):
        content = _unzip(path, content)
    *lines, rest = content.split(b"\n")
    if not lines:
        raise TraceError(f"{path} is no trace: it has no whole line, which ends with a line break")
    header = _header(path, lines[0])
    crc, damage, is_closed = zlib.crc32(lines[0]), None, False
    batches: list[tuple[Event, ...]] = []
    for number, line in enumerate(lines[1:], 2):
        try:
            parsed = json.loads(line)
            batches.append(tuple(decode(parsed["events"])))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise TraceError(f"line {number} of the trace {path} cannot be read: {error}") from None
        if is_closed and damage is None:
            damage = f"line {number} of the trace {path} follows its last line"
        is_closed = parsed.get("closed") is True
        crc = zlib.crc32(line[CRC_LENGTH:], crc)
        if damage is None and line[:CRC_LENGTH] != b'{"crc":"%08x",' % crc:
            damage = f"line {number} of the trace {path}, or one before it, was changed after it was written"
    return TraceLines(header, tuple(batches), _note(len(lines), rest, is_closed), damage)


def _note(num_lines: int, rest: bytes, is_closed: bool) -> str | None:
    if rest:
        return f"the trace ends within line {num_lines + 1}: its process was killed, or is writing it"
    if not is_closed:
        return f"the trace was not closed after line {num_lines}: its process was killed, or is still running"
    return None


def _header(path: Path, line: bytes) -> Header:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise TraceError(f"{path} is no trace: its first line is no header of {SCHEMA!r}")
    if header.get("version") != VERSION:
        version = header.get("version")
        raise TraceError(f"{path} has version {version!r} of the format; this minipaged reads {VERSION}")
    [engine] = decode([header.get("engine")])
    if not isinstance(engine, EngineStarted):
        raise TraceError(f"the header of {path} has no settings of an engine")
    return Header(engine, str(header.get("title", "")), header.get("texts") is True)


def _unzip(path: Path, content: bytes) -> bytes:
    """Decompress as much as possible, since a process that was killed leaves a file without an end.

    Raises:
        TraceError: the content is damaged before its end.
    """
    try:
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(content)
    except zlib.error as error:
        raise TraceError(f"the trace {path} cannot be decompressed: {error}") from None
