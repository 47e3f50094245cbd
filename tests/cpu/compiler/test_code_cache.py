"""Compiled code is kept by the state of all sources, and nobody else's is touched."""

from __future__ import annotations

import os
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


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of two sources, in the place of ours."""
    for name in code_cache.COMPILED:
        (tmp_path / "package" / name).mkdir(parents=True)
        (tmp_path / "package" / name / "loops.py").write_text("1")
    monkeypatch.setattr(code_cache, "PACKAGE", tmp_path / "package")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    cache_folder.cache_clear()
    yield tmp_path / "package"
    cache_folder.cache_clear()


def test_any_change_of_any_source_means_another_folder(package: Path) -> None:
    seen = {sources_hash()}
    for name in code_cache.COMPILED:
        (package / name / "loops.py").write_text("2")
        seen.add(sources_hash())
    (package / "cpu" / "more.py").write_text("1")
    assert len({*seen, sources_hash()}) == len(code_cache.COMPILED) + 2


def test_what_was_compiled_of_other_sources_is_removed(package: Path) -> None:
    before = cache_folder()
    assert before is not None
    assert before.parent == package / "__pycache__"
    (before / "code.nbc").write_text("1")
    (package / "cpu" / "loops.py").write_text("2")
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
        return SimpleNamespace(free=code_cache.ROOM_BYTES - full)

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
            inside.wait()  # for the other, which must not come in

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
