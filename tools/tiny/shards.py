"""Shards: files of JSON lines with the generated stories. A run appends to its shard."""

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
        number: the story's number in the shard.
        finish_reason: `"stop"` if the story ended by itself, `"length"` if it was cut off.
        num_tokens: number of tokens that were generated for the story, including dropped ones.
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
    """The stories of a shard, in the order in which they ended. An incomplete last line is left out."""
    if not path.exists():
        return []
    complete = path.read_bytes().rpartition(b"\n")[0]
    return [Story(**json.loads(line)) for line in complete.splitlines()]


def open_shard(path: Path) -> TextIO:
    """Open a shard for appending, and lock it. An incomplete last line, left by an interrupt, is removed.

    Raises:
        ConfigError: another process has the shard open.
    """
    import fcntl  # not on Windows, where the rest of the package runs

    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a", encoding="utf-8")
    try:
        # The system releases the lock when the file is closed or the process ends.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConfigError(f"another process writes {path}; choose another shard") from None
    file.truncate(path.read_bytes().rfind(b"\n") + 1)
    return file
