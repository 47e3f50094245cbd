"""uniform: evenly spread, independent along each of its three arguments, and stateless."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.sampling.uniform import uniform

NUM = 4096
# Chi-square with 63 degrees of freedom: mean 63, standard deviation 11.2. The draws are fixed, so the
# result is the same in every run.
LOW, HIGH = 30.0, 105.0

LINES = {
    "seed": [uniform(i, 0, 0) for i in range(NUM)],
    "sample": [uniform(7, i, 3) for i in range(NUM)],
    "position": [uniform(7, 3, i) for i in range(NUM)],
    "diagonal": [uniform(i, i, i) for i in range(NUM)],
}


def chi_square(counts: list[int]) -> float:
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 / expected for count in counts)


def test_evenly_spread() -> None:
    for name, draws in LINES.items():
        bins = Counter(int(u * 64) for u in draws)
        assert LOW < chi_square([bins[i] for i in range(64)]) < HIGH, name


def test_neighbours_are_independent() -> None:
    """Pairs of neighbouring draws, on an 8 × 8 grid, fill it evenly."""
    for name, draws in LINES.items():
        for lag in (1, 2, 7):
            pairs = Counter((int(a * 8), int(b * 8)) for a, b in zip(draws, draws[lag:], strict=False))
            assert LOW < chi_square([pairs[i, j] for i in range(8) for j in range(8)]) < HIGH, (name, lag)


def test_low_bits_are_spread_too() -> None:
    bins = Counter(int(u * 2**53) % 64 for u in LINES["position"])
    assert LOW < chi_square([bins[i] for i in range(64)]) < HIGH


def test_arguments_do_not_stand_in_for_each_other() -> None:
    draws = {uniform(a, b, c) for a in range(12) for b in range(12) for c in range(12)}
    assert len(draws) == 12**3


@settings(deadline=None)
@given(st.integers(), st.integers(0, 2**32), st.integers(0, 2**32))
def test_any_integer_gives_the_same_number_again(seed: int, sample: int, position: int) -> None:
    first = uniform(seed, sample, position)
    uniform(seed + 1, sample, position)
    assert first == uniform(seed, sample, position)
    assert 0.0 <= first < 1.0
    assert first == uniform(seed + 2**64, sample, position)


def test_values_are_pinned() -> None:
    """A seed must give the same tokens in the next version as well."""
    assert [uniform(0, 0, 0), uniform(1, 2, 3), uniform(-5, 0, 10**9)] == [
        0.08315097967980689,
        0.2141240583041618,
        0.5255199048848496,
    ]
