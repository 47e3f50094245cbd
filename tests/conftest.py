"""Fixtures that several folders of tests share."""

from __future__ import annotations

import os
from pathlib import Path

# Before torch starts its threads: on models this small one is faster, and test processes that run
# side by side (`pytest -n`) would otherwise wait for each other's.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from minipaged.errors import ModelNotFoundError
from tests.model_pairs import (
    compilable,
    compilable_folder,
    nano_gqa,
    nano_model,
    random_models,
    smollm2,
    tiny,
)

__all__ = ["compilable", "compilable_folder", "nano_gqa", "nano_model", "random_models", "smollm2", "tiny"]


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct on this machine, fetched once: a folder, or a GGUF file.

    Without it the test is skipped; in CI, where it must be there, it fails.
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
