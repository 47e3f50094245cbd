"""The paper's figures, simulated with few requests: what must come out whatever the lengths."""

from __future__ import annotations

import math

import pytest

from minipaged.errors import ConfigError
from minipaged.sim.lengths import SHAREGPT
from minipaged.sim.paper.comparison import Comparison, PaperFigure
from minipaged.sim.paper.figures import FIGURES, find_figure
from minipaged.sim.paper.latency import rate_at_latency
from minipaged.sim.paper.setting import Setting

FEW = Setting(num_requests=15)


@pytest.fixture(scope="module")
def made() -> dict[str, PaperFigure]:
    """All figures but the one that takes longest."""
    return {name: make(FEW) for name, make in FIGURES.items() if name != "fig12"}


def rows(figure: PaperFigure) -> dict[str, Comparison]:
    return {row.what: row for row in figure.rows}


def test_every_figure_has_rows_and_says_what_was_assumed(made: dict[str, PaperFigure]) -> None:
    for name, figure in made.items():
        assert figure.name == name
        assert figure.remarks
        assert all(math.isfinite(row.ours) for row in figure.rows)


def test_the_uses_of_memory_add_up_to_all_of_it(made: dict[str, PaperFigure]) -> None:
    for title in ("Orca (Max)", "Orca (Pow2)", "Orca (Oracle)"):
        shares = [row.ours for row in made["fig2"].rows if row.what.startswith(title)]
        assert len(shares) == 4
        assert sum(shares) == pytest.approx(100)


def test_max_leaves_what_seven_regions_do_not_fill(made: dict[str, PaperFigure]) -> None:
    external = rows(made["fig2"])["Orca (Max): external and other, %"]
    assert external.ours == pytest.approx(100 * (15_728 - 7 * 2048) / 15_728)
    assert external.ratio == pytest.approx(1, abs=0.01)


def test_more_samples_save_more(made: dict[str, PaperFigure]) -> None:
    saved = [row.ours for row in made["fig15"].rows if row.what.startswith("ShareGPT")]
    assert 0 < saved[0] < saved[-1]


def test_a_longer_prefix_gains_more(made: dict[str, PaperFigure]) -> None:
    one, five = (row.ours for row in made["fig16"].rows)
    assert 1 < one < five


def test_long_prompts_make_the_three_orcas_one(made: dict[str, PaperFigure]) -> None:
    first, *others = (row.ours for row in made["fig17"].rows)
    assert others == pytest.approx([first] * len(others))


def test_large_blocks_hurt_short_requests_more(made: dict[str, PaperFigure]) -> None:
    largest = [row.ours for row in made["fig18b"].rows if "blocks of 256" in row.what]
    on_share_gpt, on_alpaca = largest
    assert on_alpaca < on_share_gpt


def test_the_same_seed_gives_the_same_figure() -> None:
    make = find_figure("fig16")
    assert make(FEW) == make(FEW)
    assert make(FEW) != make(Setting(num_requests=15, seed=1))


def test_a_rate_at_a_latency_is_reached_between_rates_with_less_and_with_more() -> None:
    setting = Setting(num_requests=80)
    alone = setting.at_rate("orca-max", "OPT-13B", SHAREGPT, 0.01).normalized_latency
    slow, fast = (
        rate_at_latency(setting, "orca-max", "OPT-13B", SHAREGPT, factor * alone) for factor in (1.1, 2.0)
    )
    assert 0 < slow < fast


def test_an_unknown_figure_is_refused() -> None:
    with pytest.raises(ConfigError, match="'fig1' is not simulated: fig2"):
        find_figure("fig1")
    with pytest.raises(ConfigError, match="at least 1 request"):
        Setting(num_requests=0)


@pytest.mark.parametrize(
    ("paper", "ours", "ratio"),
    [((2.0, 2.0), 3.0, 1.5), ((2.0, 4.0), 3.0, 1.0), ((2.0, 4.0), 5.0, 1.25), ((2.0, 4.0), 1.0, 0.5)],
)
def test_a_ratio_is_to_the_nearer_end(paper: tuple[float, float], ours: float, ratio: float) -> None:
    assert Comparison("", ours, paper).ratio == ratio


def test_without_a_number_there_is_no_ratio() -> None:
    assert math.isnan(Comparison("", 1.0).ratio)
    assert math.isnan(Comparison("", 0.0, (0.0, 0.0)).ratio)
