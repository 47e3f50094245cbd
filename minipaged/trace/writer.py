"""TraceWriter: the observer that writes a trace file. `FORMAT.md` in this folder describes the file."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from minipaged.errors import TraceError
from minipaged.events import EngineReset, EngineStarted, Event, RequestAborted, StepFailed, StepFinished
from minipaged.trace.codec import encode

SCHEMA = "minipaged-trace"
VERSION = 1

CRC_LENGTH = len('{"crc":"00000000",')
"""The number of bytes at the beginning of a line that the line's checksum does not cover."""

_ENDS_OF_BATCHES = (StepFinished, StepFailed, EngineReset, RequestAborted)


class TraceWriter:
    """Writes the events of one engine to a file, one line for each step.

    >>> with TraceWriter("run.jsonl.gz") as writer:
    ...     llm = LLM("tiny", observer=writer)
    ...     llm.generate("Once upon a time")

    Each line is in the file as soon as its step has ended, so that a process that is killed leaves a readable
    trace. If Ctrl-C or an error comes while a line is written, the trace ends before this line.

    Args:
        path: the file. An existing file is replaced. The file is compressed if its name ends in `.gz`.
        title: a name for the run.
        texts: whether to write texts; without them, the trace has token ids only.

    Raises:
        TraceError: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], *, title: str = "", texts: bool = True) -> None:
        self.path = Path(path)
        self._title = title
        self._texts = texts
        self._crc: int | None = None
        self._batch: list[Event] = []
        try:
            self._file = self.path.open("wb")
        except OSError as error:
            raise TraceError(f"cannot write the trace {self.path}: {error.strerror}") from None
        is_gzip = self.path.suffix == ".gz"
        self._gzip = zlib.compressobj(6, wbits=zlib.MAX_WBITS | 16) if is_gzip else None

    def __call__(self, event: Event) -> None:
        """Take an event.

        Raises:
            TraceError: the event is the first event of a second engine, or the trace is closed.
        """
        if isinstance(event, EngineStarted):
            self._write_header(event)
            return
        self._batch.append(event)
        if isinstance(event, _ENDS_OF_BATCHES):
            self._write_batch()

    def close(self) -> None:
        """Write the remaining events, and the last line. Closing twice does nothing."""
        if self._file.closed:
            return
        if self._crc is not None:
            if self._batch:
                self._write_batch()
            with self._whole():
                self._write_line({"events": [], "closed": True})
        if self._gzip is not None:
            self._file.write(self._gzip.flush())
        self._file.close()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _write_header(self, engine: EngineStarted) -> None:
        if self._crc is not None:
            raise TraceError(f"{self.path} is the trace of another engine: use one writer for each engine")
        [encoded] = encode([engine])
        header = _json(
            {
                "schema": SCHEMA,
                "version": VERSION,
                "title": self._title,
                "texts": self._texts,
                "engine": encoded,
            }
        )
        with self._whole():
            self._crc = zlib.crc32(header)
            self._write(header)

    def _write_batch(self) -> None:
        with self._whole():
            batch, self._batch = self._batch, []
            self._write_line({"events": encode(batch, texts=self._texts)})

    def _write_line(self, line: dict[str, object]) -> None:
        if self._crc is None:
            raise TraceError(f"the trace {self.path} takes no events: it has no header yet")
        covered = _json(line)[1:]
        self._crc = zlib.crc32(covered, self._crc)
        self._write(b'{"crc":"%08x",' % self._crc + covered)

    def _write(self, line: bytes) -> None:
        line += b"\n"
        if self._gzip is not None:
            line = self._gzip.compress(line) + self._gzip.flush(zlib.Z_SYNC_FLUSH)
        self._file.write(line)
        self._file.flush()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Write one line as a whole, or end the file before it: no later line could follow a part of it."""
        if self._file.closed:
            raise TraceError(f"the trace {self.path} is closed")
        end = self._file.tell()
        try:
            yield
        except BaseException:
            self._file.truncate(end)
            self._file.close()
            raise


def _json(value: object) -> bytes:
    """The value as JSON in ASCII, so that no text can break a line or the encoding."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")
