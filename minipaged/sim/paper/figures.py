"""All figures that are simulated, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from minipaged.errors import ConfigError
from minipaged.sim.paper.blocks import fig15, fig18b, fig19
from minipaged.sim.paper.comparison import PaperFigure
from minipaged.sim.paper.memory_use import fig2, fig13
from minipaged.sim.paper.setting import Setting
from minipaged.sim.paper.throughput import fig12, fig14, fig16, fig17

MakeFigure = Callable[[Setting], PaperFigure]

FIGURES: Mapping[str, MakeFigure] = MappingProxyType(
    {
        "fig2": fig2,
        "fig12": fig12,
        "fig13": fig13,
        "fig14": fig14,
        "fig15": fig15,
        "fig16": fig16,
        "fig17": fig17,
        "fig18b": fig18b,
        "fig19": fig19,
    }
)


def find_figure(name: str) -> MakeFigure:
    """The function that simulates a figure.

    Raises:
        ConfigError: the figure is not simulated; the message lists those that are.
    """
    if name not in FIGURES:
        raise ConfigError(f"{name!r} is not simulated: {', '.join(FIGURES)} or all")
    return FIGURES[name]
