"""The package is in order: no import cycles, no machinery in the root, and a test for each module."""

from __future__ import annotations

import ast
import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "minipaged"
TESTS = ROOT / "tests"

AT_THE_ROOT = {
    "__init__",
    "__main__",
    "choices",
    "config",
    "errors",
    "known_names",
    "llm",
    "options",
    "parts",
    "request",
    "stages",
    "transfer",
}
"""Modules that users import or configure, and modules that all rooms share."""


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    named = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The package's modules that a file imports. Imports for types and inside functions count too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in known else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found & set(known)


def test_no_module_imports_itself_by_a_detour() -> None:
    known = modules()
    # `minipaged/__init__.py` names everything that users import, but imports it only at its first use.
    graph = {
        name: imports(path, known) - {"minipaged"} for name, path in known.items() if name != "minipaged"
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"an import cycle: {' -> '.join(error.args[1])}")


def test_the_root_holds_no_machinery() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == AT_THE_ROOT


@pytest.mark.parametrize(
    ("room", "unknown_to_it"),
    [
        ("model", ("cpu", "triton_kernels", "attention", "runner", "scheduler", "engine")),
        ("events", ("kv", "baseline", "runner", "scheduler", "engine", "trace", "view", "cli", "course")),
        ("kv", ("runner", "scheduler", "engine", "baseline")),
        ("attention", ("scheduler", "engine")),
        ("sampling", ("runner", "scheduler", "engine")),
        ("scheduler", ("runner", "engine", "trace")),
        ("runner", ("engine",)),
        ("engine", ("cli", "bench", "view", "course", "trace")),
        ("trace", ("cli", "bench", "view", "course", "runner", "scheduler", "engine")),
        ("view", ("cli", "course")),
        ("bench", ("cli", "course")),
    ],
)
def test_arrows_go_one_way(room: str, unknown_to_it: tuple[str, ...]) -> None:
    known = modules()
    for name, path in known.items():
        if name.startswith(f"minipaged.{room}."):
            wrong = {
                each for each in imports(path, known) if each.split(".")[1:2] in [[x] for x in unknown_to_it]
            }
            assert not wrong, f"{name} imports {sorted(wrong)}"


def test_no_two_test_files_have_the_same_name() -> None:
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_each_module_has_a_test_file_of_its_name_or_a_sentence() -> None:
    """A test file is in the folder that mirrors the module's, or `tests/README.md` names the module."""
    told = set(re.findall(r"`([\w/]+\.py)`", (TESTS / "README.md").read_text()))
    missing = []
    for path in modules().values():
        relative = path.relative_to(PACKAGE)
        if path.name.startswith("__") or re.match(r"course/ch\d\d/", str(relative)):
            continue  # a chapter's own modules are tested by the gates of the course
        mirrored = TESTS / relative.with_name(f"test_{path.name}")
        if not mirrored.exists() and str(relative) not in told:
            missing.append(str(relative))
    assert missing == []


def test_what_the_sentences_name_is_there() -> None:
    told = set(re.findall(r"`([\w/]+\.py)`", (TESTS / "README.md").read_text()))
    assert [name for name in told if not ((PACKAGE / name).exists() or (TESTS / name).exists())] == []


def test_tests_mirror_the_rooms() -> None:
    for folder in (path for path in TESTS.rglob("*") if path.is_dir() and path.name != "__pycache__"):
        relative = folder.relative_to(TESTS)
        assert (PACKAGE / relative).is_dir() or (ROOT / relative).is_dir(), f"no room {relative}"
