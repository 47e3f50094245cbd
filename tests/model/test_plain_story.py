"""The decoder can be read in one sitting, and nothing in it is there for the sake of compiled code."""

from __future__ import annotations

import ast
from pathlib import Path

import minipaged

PACKAGE = Path(minipaged.__file__).parent
STORY = ("decoder.py", "layer.py", "rope.py", "config.py")
MOST_LINES = 700
CHOOSERS = {"attention/backend.py", "engine/assembly.py", "runner/decode_steps.py"}
"""What chooses between the plain engine and the compiled one."""

LIMITS_THREADS = {"engine/llm_engine.py", "engine/threads.py", "cli/health.py"}
"""What limits the number of threads; see `compiler/thread_limit.py`."""

MEASURES = {"bench/throughput/machine_rates.py"}
"""What measures how fast the compiled products are."""


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
