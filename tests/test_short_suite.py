"""What `pytest` runs without `--long`: some of every kind of test, and with every chapter the solutions."""

from __future__ import annotations

import unittest
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).parents[1]

WHOLLY_LONG = {"tests/loading/test_smollm2.py"}
"""Files all of whose tests need what is fetched, or take long."""


class Collected:
    """A plugin of pytest: the tests that a run would have."""

    def __init__(self) -> None:
        self.short: list[pytest.Item] = []
        self.long: list[pytest.Item] = []
        self.impl = ""

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.long += items

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.short = session.items
        self.impl = session.config.getoption("--impl")


@pytest.fixture(scope="module")
def collected() -> Collected:
    """Of `pytest` without any argument. Modules are not imported again where this process has them."""
    found, profile = Collected(), hypothesis.settings.get_current_profile_name()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.delenv("MINIPAGED_IMPL", raising=False)
        patch.delenv("PYTEST_ADDOPTS", raising=False)
        # Not the plugin that would collect all garbage at the end, which takes seconds.
        without = ["-p", "no:cacheprovider", "-p", "no:unraisableexception"]
        code = pytest.main(["--collect-only", "--capture=no", *without], plugins=[found])
    hypothesis.settings.load_profile(profile)
    assert code == pytest.ExitCode.OK
    return found


def _file(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT).as_posix()


def test_every_file_of_tests_keeps_some(collected: Collected) -> None:
    short = {_file(item) for item in collected.short}
    assert {_file(item) for item in collected.long} - short == WHOLLY_LONG


def test_every_kind_is_kept(collected: Collected) -> None:
    names = [f"{_file(item)}::{item.name}" for item in collected.short]
    kinds = {
        "compared with transformers": [
            item for item in collected.short if "random_models" in getattr(item, "fixturenames", ())
        ],
        "property": [item for item in collected.short if hasattr(getattr(item, "obj", None), "hypothesis")],
        "state machine": [
            item
            for item in collected.short
            if isinstance(item, pytest.Function) and item.cls and issubclass(item.cls, unittest.TestCase)
        ],
        "notebook": [name for name in names if "::test_a_notebook_runs_to_its_end" in name],
        "stubs": [name for name in names if "::test_solving_the_first_exercises" in name],
        "bug zoo": [name for name in names if "::test_every_bug_is_caught" in name],
    }
    assert [kind for kind, tests in kinds.items() if not tests] == []


def test_each_chapter_is_run_with_the_solutions(collected: Collected) -> None:
    assert collected.impl == "solutions"
    wanted = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("chapters/*/test_*.py")}
    assert wanted
    assert wanted <= {_file(item) for item in collected.short}
