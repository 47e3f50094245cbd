"""The folder of compiled code depends on all sources that are compiled, and on no others."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from numba.core import config

from minipaged.cpu.compiler import code_cache
from minipaged.cpu.compiler.code_cache import cache_folder, own_cache, sources_hash

LOOPS = "from minipaged.cpu.compiler.compiled import compiled\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with one source that has loops and one that has none, in the place of ours."""
    (tmp_path / "package" / "cpu").mkdir(parents=True)
    (tmp_path / "package" / "cpu" / "loops.py").write_text(LOOPS)
    (tmp_path / "package" / "cpu" / "plain.py").write_text("import numpy\n")
    monkeypatch.setattr(code_cache, "PACKAGE", tmp_path / "package")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    cache_folder.cache_clear()
    yield tmp_path / "package"
    cache_folder.cache_clear()


def test_any_change_of_a_compiled_source_means_another_folder(package: Path) -> None:
    seen = {sources_hash()}
    (package / "cpu" / "loops.py").write_text(LOOPS + "2\n")
    seen.add(sources_hash())
    (package / "cpu" / "more.py").write_text(LOOPS)
    seen.add(sources_hash())
    (package / "cpu" / "more.py").rename(package / "cpu" / "others.py")
    assert len({*seen, sources_hash()}) == 4


def test_no_change_of_another_source_does(package: Path) -> None:
    before = sources_hash()
    (package / "cpu" / "plain.py").write_text("import numpy\n2\n")
    (package / "cpu" / "more.py").write_text("import torch\n")
    (package / "model.py").write_text(LOOPS)
    os.utime(package / "cpu" / "loops.py", (0, 0))
    assert sources_hash() == before


# The real sources: this test finds out again, from the decorators, which of them are compiled.

CPU = Path(code_cache.__file__).parents[1]
SOURCES = sorted(path.relative_to(CPU).as_posix() for path in CPU.rglob("*.py"))
DECORATORS = {"compiled", "shared_work", "intrinsic", "overload"}
Definitions = dict[str, ast.FunctionDef]


def name_of(decorator: ast.expr) -> str:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return function.id if isinstance(function, ast.Name) else ""


def compiled_functions(source: str) -> tuple[ast.Module, Definitions]:
    """A file's syntax tree, and its functions that are compiled or that make code for compiled functions."""
    tree = ast.parse((CPU / source).read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if any(isinstance(each, ast.ImportFrom) and each.module == "llvmlite" for each in tree.body):
        return tree, functions
    return tree, {
        name: node
        for name, node in functions.items()
        if DECORATORS & {name_of(each) for each in node.decorator_list}
    }


@pytest.fixture
def copied_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(CPU, tmp_path / "cpu", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code_cache, "PACKAGE", tmp_path)
    monkeypatch.setattr(code_cache, "__file__", str(tmp_path / "cpu" / "compiler" / "code_cache.py"))
    return tmp_path / "cpu"


@pytest.mark.parametrize("source", SOURCES)
def test_which_edits_recompile(source: str, copied_room: Path) -> None:
    """For a file with loops, and for the file that says how loops are compiled."""
    before = sources_hash()
    with (copied_room / source).open("a") as file:
        file.write("# an edit\n")
    is_compiled = bool(compiled_functions(source)[1]) or source == "compiler/compiled.py"
    assert (sources_hash() != before) == is_compiled


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_compiled_uses_nothing_of_other_files(source: str) -> None:
    """Compiled code would keep using the old constant."""
    tree, functions = compiled_functions(source)
    nodes = [node for each in functions.values() for node in ast.walk(each)]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and str(statement.module).startswith("minipaged."):
            names = used & {each.asname or each.name for each in statement.names}
            path = CPU.parent.joinpath(*str(statement.module).split(".")[1:]).with_suffix(".py")
            assert not names or code_cache.COMPILED.search(path.read_text()), f"{names} of {path}"


def test_what_was_compiled_of_other_sources_is_removed(package: Path) -> None:
    before = cache_folder()
    assert before is not None
    assert before.parent == package / "__pycache__"
    (before / "code.nbc").write_text("1")
    (package / "cpu" / "loops.py").write_text(LOOPS + "2\n")
    cache_folder.cache_clear()
    after = cache_folder()
    assert after is not None
    assert after.is_dir()
    assert not before.exists()


def test_where_the_package_cannot_be_written(package: Path, tmp_path: Path) -> None:
    (package / "__pycache__").write_text("no folder")
    folder = cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path / "users" / "minipaged"


def test_the_first_time_is_announced(package: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        cache_folder.cache_clear()
        cache_folder()
    (record,) = caplog.records
    assert "the first time only" in record.message


def test_where_nothing_can_be_written(
    package: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (package / "__pycache__").write_text("no folder")
    (tmp_path / "users").write_text("no folder")
    assert cache_folder() is None
    (record,) = caplog.records
    assert "in every process" in record.message
    assert str(package / "__pycache__") in record.message
    with own_cache() as usable:
        assert not usable


def test_numbas_own_setting_is_put_back(package: Path) -> None:
    before = config.CACHE_DIR  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(KeyError), own_cache():
        raise KeyError
    assert before == config.CACHE_DIR  # pyright: ignore[reportAttributeAccessIssue]


def test_a_full_disk_is_not_written(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def usage(path: Path) -> SimpleNamespace:
        full = path.is_relative_to(package)
        return SimpleNamespace(free=code_cache.SPACE_BYTES - full)

    monkeypatch.setattr(code_cache.shutil, "disk_usage", usage)
    folder = cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path / "users" / "minipaged"


@pytest.mark.usefixtures("package")
def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(code_cache.os.path, "expanduser", lambda path: path)
    folder = cache_folder()
    assert folder is not None
    assert folder.parent == code_cache.PACKAGE / "__pycache__"


def test_numbas_setting_is_put_back_whatever_two_threads_do_at_once(package: Path) -> None:
    before = config.CACHE_DIR  # pyright: ignore[reportAttributeAccessIssue]
    inside = threading.Barrier(2, timeout=0.2)

    def compile_something() -> None:
        with own_cache(), suppress(threading.BrokenBarrierError):
            inside.wait()  # give the other thread time: it must not enter

    threads = [threading.Thread(target=compile_something) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside.broken
    assert before == config.CACHE_DIR  # pyright: ignore[reportAttributeAccessIssue]


def test_without_numbas_compiler_the_error_says_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import minipaged.cpu.compiler.compiled"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ConfigError: models on a CPU need numba's compiler: unset NUMBA_DISABLE_JIT" in done.stderr
