"""Fixtures that several folders of tests share."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

# This runs before torch starts its threads. With models this small, one thread is faster. With several test
# processes (`pytest -n`), more threads would also wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from minipaged.errors import ModelNotFoundError


def pytest_configure(config: pytest.Config) -> None:
    """The models' fixtures come with transformers, which takes seconds to import. A process that only hands
    tests to others (`pytest -n`) does without."""
    if not getattr(config.option, "numprocesses", None):
        config.pluginmanager.import_plugin("tests.model_pairs")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A test that left PyTorch another number of threads would make all later ones wait for each other."""
    import torch  # not above: see pytest_configure

    before = torch.get_num_threads()
    result = yield
    after = torch.get_num_threads()
    assert after == before, f"{item.nodeid} leaves PyTorch {after} threads instead of {before}"
    return result


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct on this machine, fetched once: a folder, or a GGUF file.

    If it cannot be fetched, the test is skipped. In CI the test fails instead.
    """
    from minipaged.loading.locations import SMOLLM2, locate_or_fetch

    try:
        path = locate_or_fetch(SMOLLM2).path
    except ModelNotFoundError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI needs SmolLM2: {error}")
        pytest.skip(f"SmolLM2 cannot be fetched: {error}")
    assert path is not None
    return path
