"""Amounts of memory, as text and as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.errors import ConfigError
from minipaged.view.byte_amounts import format_binary, format_decimal, parse_memory


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("12GB", 12 * 10**9),
        ("12G", 12 * 10**9),
        ("12GiB", 12 * 2**30),
        ("12Gi", 12 * 2**30),
        ("800M", 800 * 10**6),
        ("800MiB", 800 * 2**20),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("2TB", 2 * 10**12),
        ("2TiB", 2 * 2**40),
        ("4096", 4096),
        ("4096B", 4096),
        (" 24 gib ", 24 * 2**30),
        ("1.5GiB", 3 * 2**29),
        ("0.1GB", 10**8),
        ("1.1KiB", 1126),  # 1126.4: a fraction of a byte is dropped
    ],
)
def test_amounts(text: str, num_bytes: int) -> None:
    assert parse_memory(text) == num_bytes


@pytest.mark.parametrize(
    "text", ["", "GB", "12GBB", "12XB", "-1GB", "1e9", "1,000", "12 G B", "nan", "١٢GB", "12Bi", ".5GB"]
)
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an amount of memory"):
        parse_memory(text)


@pytest.mark.parametrize("text", ["0", "0GiB", "0.1B"])
def test_less_than_a_byte(text: str) -> None:
    with pytest.raises(ConfigError, match="less than one byte"):
        parse_memory(text)


@given(st.integers(1, 10**17))
def test_formats_are_right_to_four_digits(num_bytes: int) -> None:
    for formatted in (format_binary(num_bytes), format_decimal(num_bytes)):
        assert parse_memory(formatted.replace(",", "")) == pytest.approx(num_bytes, rel=6e-4, abs=1)


def test_formats() -> None:
    assert format_binary(819_200) == "800 KiB"
    assert format_binary(2**30 - 2**20) == "1,023 MiB"
    assert format_binary(1_677_721_600 + 2**20) == "1.563 GiB"
    assert format_decimal(25_706_946_560) == "25.71 GB"
    assert format_binary(0) == "0 B"
    assert format_binary(2**60) == "1,024 PiB"
