"""Stories as they were written: files of JSON lines, to which a run appends."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from minipaged.errors import ConfigError


@dataclass(frozen=True)
class Story:
    """One line of a shard.

    Attributes:
        number: within the shard.
        finish_reason: `"stop"` if the story ended by itself, `"length"` if it was cut off.
        num_tokens: how many were generated for it, dropped ones included.
    """

    number: int
    opening: str
    text: str
    finish_reason: str
    temperature: float
    num_tokens: int


def shard_path(folder: Path, shard: int) -> Path:
    """The file of a shard."""
    return folder / f"shard-{shard:03}.jsonl"


def read_shard(path: Path) -> list[Story]:
    """The stories of a shard, in the order in which they were finished. A torn last line is left out."""
    if not path.exists():
        return []
    complete = path.read_bytes().rpartition(b"\n")[0]
    return [Story(**json.loads(line)) for line in complete.splitlines()]


def open_shard(path: Path) -> TextIO:
    """For appending, locked, after a line that an interrupt has torn was cut off.

    Raises:
        ConfigError: another process has it open.
    """
    import fcntl  # not on Windows, where the rest of the package runs

    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a", encoding="utf-8")
    try:
        # The system lets go of the lock when the file is closed, or the process gone.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConfigError(f"another process writes {path}; choose another shard") from None
    file.truncate(path.read_bytes().rfind(b"\n") + 1)
    return file
