"""Which tests a run has, and with how many examples a property is tried: all with `--long`.

`pytest` alone is for a person who waits for the answer. It runs tests of every kind, and leaves out those
that are marked `long` and those that need SmolLM2. A test whose node id is given always runs.
`conftest.py` in the repository's root makes this module a plugin.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

hypothesis.settings.register_profile("quick", max_examples=30, deadline=None)
hypothesis.settings.register_profile("long", deadline=None)  # 100 examples


def examples(number: int) -> int:
    """The examples of an expensive property: `number` with `--long`, a fifth of it without."""
    return number if hypothesis.settings.get_current_profile_name() == "long" else -(-number // 5)


LEFT_OUT = pytest.StashKey[int]()
"""How many tests this session leaves out, which `--long` would run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="all tests, also those that take long, with all their examples"
    )


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist's own, which would choose another way to hand out tests
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Give each of several processes tests that follow each other, so that it makes a fixture once.

    A process that is done takes some tests of another, so that all end at about the same time.
    """
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.load_profile("long" if config.getoption("--long") else "quick")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    is_all = config.getoption("--long") or any("::" in argument for argument in config.args)
    long = set() if is_all else _long_ones(items)
    yield  # afterwards there are those that -k and -m have left
    out = [item for item in items if item in long]
    if out:
        items[:] = [item for item in items if item not in long]
        config.stash[LEFT_OUT] = len(out)
        config.hook.pytest_deselected(items=out)


def _long_ones(items: list[pytest.Item]) -> set[pytest.Item]:
    """The tests with one of the two markers, except for the cases that `long(keep=...)` keeps."""
    long: set[pytest.Item] = set()
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("smollm2") is not None:
            long.add(item)
        elif item.get_closest_marker("long") is not None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for each in cases.values():
        marker = each[0].get_closest_marker("long")
        assert marker is not None
        kept = spread(len(each), marker.kwargs.get("keep", 0))
        long.update(item for place, item in enumerate(each) if place not in kept)
    return long


def spread(number: int, keep: int) -> set[int]:
    """Some places below `number`: the first, and others that lie far apart.

    The step from one to the next is about the golden section, and has no divisor in common with the number.
    Of cases that are all combinations of some parameters, it meets most values of each.
    """
    steps = (step for step in range(1, number + 1) if math.gcd(step, number) == 1)
    step = min(steps, key=lambda step: abs(step - number * 0.618))
    return {place * step % number for place in range(min(number, keep))}


# With pytest-xdist each worker collects all tests, and the process that reports collects none.


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController) -> None:
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    number = config.stash.get(LEFT_OUT, 0)
    if number:
        terminalreporter.write_line(f"--long runs {number:,} more {'test' if number == 1 else 'tests'}")
