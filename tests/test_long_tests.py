"""`pytest --long`: what a run leaves out without it, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.long_tests import spread

pytest_plugins = ["pytester"]

TESTS = """
import pytest

def test_short():
    pass

@pytest.mark.long
def test_long():
    pass

@pytest.mark.long(keep=2)
@pytest.mark.parametrize("case", ["a", "b", "c", "d", "e"])
def test_cases(case):
    pass
"""
MARKERS = "[pytest]\naddopts = --strict-markers -p no:cacheprovider\nmarkers = long"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.Pytester]:
    """A project with our root's conftest and a few tests."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    profile = hypothesis.settings.get_current_profile_name()
    pytester.makeini(MARKERS)
    pytester.makeconftest(Path(__file__).parents[1].joinpath("conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(test_it=TESTS)
    yield pytester
    hypothesis.settings.load_profile(profile)


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one process", "xdist"])
def test_long_tests_are_left_out_and_counted(project: pytest.Pytester, workers: list[str]) -> None:
    run = project.runpytest_inprocess(*workers)
    run.assert_outcomes(passed=3, deselected=0 if workers else 4)
    run.stdout.fnmatch_lines(["--long runs 4 more tests"])


def test_with_the_option_all_run(project: pytest.Pytester) -> None:
    run = project.runpytest_inprocess("--long")
    run.assert_outcomes(passed=7)
    run.stdout.no_fnmatch_line("*--long runs*")


def test_a_test_that_is_named_runs(project: pytest.Pytester) -> None:
    project.runpytest_inprocess("test_it.py::test_long").assert_outcomes(passed=1)


def test_only_those_that_are_asked_for_are_counted(project: pytest.Pytester) -> None:
    run = project.runpytest_inprocess("-k", "test_long or test_short")
    run.assert_outcomes(passed=1, deselected=6)
    run.stdout.fnmatch_lines(["--long runs 1 more test"])


def test_cases_that_are_kept_have_most_values_of_each_parameter() -> None:
    """Of all combinations, in the order in which `pytest.mark.parametrize` gives them."""
    for outer, inner in ((9, 4), (8, 4), (3, 8), (4, 3), (9, 2)):
        keep = max(outer, inner)
        places = spread(outer * inner, keep)
        assert len({place % inner for place in places}) > inner / 2
        assert len({place // inner for place in places}) > outer / 2


def test_a_test_may_keep_any_number_of_its_cases() -> None:
    for number in range(1, 60):
        for keep in range(number + 3):
            places = spread(number, keep)
            assert len(places) == min(number, keep)
            assert places <= set(range(number))
            assert keep == 0 or 0 in places
