"""A simulation as a picture: the batch, the queue and the memory over time."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from minipaged.sim.measures import SimulationResult
from minipaged.view.labels import COLOURS


def plot_simulation(result: SimulationResult, title: str, path: Path) -> None:
    """Draw a run over time. The ending of `path` decides the format.

    Raises:
        OSError: the file cannot be written.
    """
    # A plain Figure instead of pyplot: it has no global state and needs no display.
    figure = Figure(figsize=(9, 5), layout="constrained")
    requests, memory = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    seconds = [each.seconds for each in result.moments]
    requests.plot(seconds, [each.num_running for each in result.moments], color=COLOURS[4], label="running")
    requests.plot(
        seconds, [each.num_waiting for each in result.moments], "--", color=COLOURS[5], label="waiting"
    )
    requests.set_ylabel("requests")
    requests.legend(frameon=False)
    memory.plot(seconds, [100 * each.usage for each in result.moments], color=COLOURS[2])
    memory.set_ylim(0, 105)
    memory.set_ylabel("KV memory in use, %")
    memory.set_xlabel("simulated seconds")
    figure.suptitle(title)
    figure.savefig(path)
