"""The decoder is short enough to read at once, and has no code for the compiled path."""

from __future__ import annotations

import ast
from pathlib import Path

import minipaged

PACKAGE = Path(minipaged.__file__).parent
STORY = ("decoder.py", "layer.py", "rope.py", "config.py")
MOST_LINES = 700
CHOOSERS = {"attention/backend.py", "engine/assembly.py", "runner/decode_steps.py"}
"""Modules that choose between plain and compiled code."""

LIMITS_THREADS = {"engine/llm_engine.py", "engine/threads.py", "cli/health.py"}
"""Modules that limit the number of threads; see `compiler/thread_limit.py`."""

MEASURES = {"bench/throughput/machine_rates.py"}
"""Modules that measure the compiled products."""


def imported(path: Path) -> set[str]:
    """The modules that a file imports anywhere."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            modules |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            modules |= {each.name for each in node.names}
    return modules


def test_its_length() -> None:
    lines = sum(len((PACKAGE / "model" / name).read_text().splitlines()) for name in STORY)
    assert lines < MOST_LINES


def test_who_knows_of_compiled_code() -> None:
    knowing = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if any(f"{module}.".startswith("minipaged.cpu.") for module in imported(path))
    }
    outside = {name for name in knowing if not name.startswith("cpu/")}
    assert outside == CHOOSERS | LIMITS_THREADS | MEASURES
