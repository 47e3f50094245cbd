"""One embedded model for all tests of the view."""

from __future__ import annotations

import pytest
import torch

from minipaged.loading.loader import LoadedModel, load_model


@pytest.fixture(scope="session")
def tiny() -> LoadedModel:
    return load_model("tiny", dtype=torch.float32, device=torch.device("cpu"))
