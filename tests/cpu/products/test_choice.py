"""The choice of the matrix product: the result is always right, and a product that fails is never chosen."""

from __future__ import annotations

import pytest
import torch
from numba.core.errors import NumbaError
from torch import Tensor
from torch.nn import functional as F

from minipaged.cpu.products import choice as linear_products
from minipaged.cpu.products.choice import TRIAL_ROWS, ProductChoice, choose_product, panels_pay
from minipaged.cpu.products.panel_linear import Product, in_rows


def marked(number: float) -> Product:
    """A product that can be recognised by its result."""

    def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return torch.full((len(x), len(weight)), number)

    return product


@pytest.mark.parametrize(
    ("rows", "expected"), [(1, 1), (2, 8), (8, 8), (9, 32), (32, 32), (33, 99), (500, 99)]
)
def test_the_number_of_rows_decides(rows: int, expected: int) -> None:
    choice = ProductChoice(((1, marked(1)), (8, marked(8)), (32, marked(32))), marked(99))
    assert choice(torch.zeros(rows, 4), torch.zeros(3, 4), None)[0, 0] == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 40, 200])
def test_onednn_gives_what_linear_gives(rows: int, with_bias: bool, dtype: torch.dtype) -> None:
    weight = torch.randn(96, 64).to(dtype)
    if choose_product([weight]) == ProductChoice():
        pytest.skip("this PyTorch has no oneDNN")
    x = torch.randn(rows, 80).to(dtype)[:, 8:72]  # rows that are not contiguous
    bias = torch.randn(96).to(dtype) if with_bias else None
    expected = F.linear(x, weight, bias).float()
    result = linear_products.onednn_linear(x, weight, bias).float()
    assert (result - expected).abs().max() < (1e-4 if dtype == torch.float32 else 0.2)


def test_the_faster_one_is_chosen_for_each_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(product: Product, weights: list[Tensor], rows: int) -> float:
        return 1.0 if product is F.linear else {1: 0.5, 8: 0.9, 32: 2.0, 128: 0.7}[rows]

    monkeypatch.setattr(linear_products, "_seconds", seconds)
    monkeypatch.setattr(linear_products, "_agree", lambda product, own_weight, weight: True)
    choice = choose_product([torch.zeros(4, 4)])
    onednn = linear_products.onednn_linear
    assert choice.by_rows == ((1, onednn), (8, F.linear), (32, F.linear))  # 0.9 is not a clear advantage
    assert choice.beyond is onednn
    assert TRIAL_ROWS[-1] == 128


@pytest.mark.parametrize("fault", ["raises", "differs", "nan"])
def test_a_product_that_does_not_work_is_not_used(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    def broken(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if fault == "raises":
            raise RuntimeError("mkldnn is not there")
        return F.linear(x, weight) + (0.01 if fault == "differs" else torch.nan)

    monkeypatch.setattr(linear_products, "onednn_linear", broken)
    monkeypatch.setattr(linear_products, "ADVANTAGE", 0.0)  # any product that works would be chosen
    assert choose_product([torch.randn(64, 64)]) == ProductChoice()


def test_a_trial_reads_a_few_weights_and_changes_none() -> None:
    weights = [torch.randn(1024, 1024) for _ in range(12)]  # 4 MiB each
    before = [weight.clone() for weight in weights]
    choose_product(weights)
    assert all(torch.equal(a, b) for a, b in zip(weights, before, strict=True))
    assert len(linear_products._enough(weights)) == 4


def test_no_weights_no_choice() -> None:
    assert choose_product([]) == ProductChoice()


@pytest.mark.parametrize(("ours", "pays"), [(0.5, True), (1.0, True), (1.1, True), (1.3, False)])
def test_weights_are_put_in_panels_unless_another_product_is_clearly_ahead(
    monkeypatch: pytest.MonkeyPatch, ours: float, pays: bool
) -> None:
    def seconds(product: Product, weights: list[Tensor], rows: int) -> float:
        return ours * rows if product is linear_products.panel_linear else rows

    monkeypatch.setattr(linear_products, "_seconds", seconds)
    assert panels_pay([torch.randn(64, 8)], F.linear) == pays


@pytest.mark.parametrize("fault", ["raises", "differs", "nan"])
def test_panels_that_do_not_work_do_not_pay(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    def broken(x: Tensor, panels: Tensor, bias: Tensor | None) -> Tensor:
        if fault == "raises":
            raise NumbaError("it cannot be compiled")
        return F.linear(x, in_rows(panels)) + (0.01 if fault == "differs" else torch.nan)

    monkeypatch.setattr(linear_products, "panel_linear", broken)
    monkeypatch.setattr(linear_products, "ADVANTAGE", 1e9)  # any product that works would pay
    assert not panels_pay([torch.randn(64, 64)], F.linear)


def test_weights_that_do_not_fit_panels() -> None:
    assert not panels_pay([torch.randn(65, 64)], F.linear)
