"""Amounts of memory as people write them, and as bytes.

`GB` is decimal and `GiB` is binary. They differ by 7 %. For OPT-13B, 12 GB hold 15,000 slots, and 12 GiB hold
15,728. So the two units are never confused here.
"""

from __future__ import annotations

import re
from fractions import Fraction

from minipaged.errors import ConfigError

_AMOUNT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(?:([kmgtp])(i?))?b?", re.IGNORECASE)
_PREFIXES = "kmgtp"


def parse_memory(text: str) -> int:
    """Parse an amount such as `12GB` (10⁹), `12GiB` or `12Gi` (2³⁰), `800M` (10⁶) or `4096`, as bytes.

    Case and a space before the unit do not matter. A fraction of a byte is dropped.

    Raises:
        ConfigError: `text` is not an amount of memory, or it is less than one byte.

    >>> parse_memory("12GB"), parse_memory("12GiB"), parse_memory("800M")
    (12000000000, 12884901888, 800000000)
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ConfigError(
            f"{text!r} is not an amount of memory. Write 24GiB (2^30 bytes each), 24GB (10^9), 800M (10^6), "
            "or a number of bytes."
        )
    number, prefix, binary = match.groups()
    exponent = _PREFIXES.index(prefix.lower()) + 1 if prefix else 0
    amount = int(Fraction(number) * (1024 if binary else 1000) ** exponent)
    if amount < 1:
        raise ConfigError(f"{text!r} is less than one byte")
    return amount


def format_binary(num_bytes: int) -> str:
    """Bytes in the largest binary unit that they fill, to four digits: `800 KiB`, `1.563 GiB`."""
    return _format(num_bytes, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def format_decimal(num_bytes: int) -> str:
    """Bytes in the largest decimal unit that they fill, to four digits: `25.71 GB`."""
    return _format(num_bytes, 1000, ("B", "kB", "MB", "GB", "TB", "PB"))


def _format(num_bytes: int, base: int, units: tuple[str, ...]) -> str:
    exponent = 0
    while exponent + 1 < len(units) and abs(num_bytes) >= base ** (exponent + 1):
        exponent += 1
    amount = num_bytes / base**exponent
    # Four significant digits. From 1,000 on (up to 1,023 of a binary unit), `g` might give an exponent.
    digits = f"{amount:.4g}" if abs(amount) < 1000 else f"{amount:,.0f}"
    return f"{digits} {units[exponent]}"
