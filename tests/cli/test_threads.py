"""A small model gets one thread, a large model keeps all threads, and the old number is restored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from minipaged.cli.threads import SMALL_MODEL, suitable_threads


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("size", "expected"), [(10, 1), (SMALL_MODEL, 2)])
def test_threads_within_and_afterwards(size: int, expected: int) -> None:
    model = nn.Linear(size, 1, bias=False, device="meta")
    with suitable_threads(model):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_threads_after_an_error() -> None:
    with pytest.raises(ValueError, match="x"), suitable_threads(nn.Linear(2, 2)):
        raise ValueError("x")
    assert torch.get_num_threads() == 2
