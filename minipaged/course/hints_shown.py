"""Saves on this machine which hints the reader has seen. So `minipaged hint` can show the next one."""

from __future__ import annotations

import json
from pathlib import Path

from minipaged.course import folders


def num_shown(exercise: str) -> int:
    """How many hints of this exercise were shown."""
    return _read().get(exercise, 0)


def note_shown(exercise: str, level: int) -> None:
    """Record that the hints up to `level` were shown."""
    shown = _read()
    shown[exercise] = max(level, shown.get(exercise, 0))
    _file().parent.mkdir(exist_ok=True)
    _file().write_text(json.dumps(shown), encoding="utf-8")


def _file() -> Path:
    return folders.state_folder() / "hints.json"


def _read() -> dict[str, int]:
    try:
        content = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {str(number): level for number, level in content.items() if isinstance(level, int)}
