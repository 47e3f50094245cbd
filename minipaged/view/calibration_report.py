"""A calibration as tables: the fit, and the predictions next to the measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.text import Text

from minipaged.sim.calibration import Calibration, Prediction
from minipaged.view.whole_table import WholeTable


def calibration_report(calibration: Calibration) -> RenderableType:
    """The fitted numbers, then a table for each load that was held out."""
    parts = ", ".join(
        f"{name.replace('_', ' ')} {seconds * 1e6:.3g} µs"
        for name, seconds in asdict(calibration.step_time).items()
    )
    fit = Text(
        f"Fitted to {calibration.num_steps:,} steps of the real engine on this machine: {parts}. "
        f"It explains {calibration.explained:.1%} of their variance."
    )
    tables = [_table(each) for each in calibration.predictions]
    note = Text(
        "- the simulation's queues and block counts were compared with the real engine's after every step of "
        "every measured run, and were equal"
    )
    return Group(fit, *tables, note)


def _table(prediction: Prediction) -> WholeTable:
    table = WholeTable(f"Held out: {prediction.name}", "", "predicted", "measured", "error")
    for name, predicted, measured in compared(prediction):
        error = f"{predicted / measured - 1:+.1%}" if measured else f"{predicted - measured:+g}"
        table.add_row(name, f"{predicted:,.4g}", f"{measured:,.4g}", error)
    return table


def compared(prediction: Prediction) -> Iterator[tuple[str, float, float]]:
    """Yield each quantity to compare: its name, the predicted value, and the measured value."""
    predicted, measured = prediction.predicted, prediction.measured
    yield "steps", predicted.num_steps, measured.num_steps
    yield "preemptions", predicted.num_preemptions, measured.num_preemptions
    yield "output tokens/s", predicted.output_tokens_per_second, measured.output_tokens_per_second
    yield "mean batch", predicted.mean_batch, measured.mean_batch
    for name, ours, theirs in (
        ("first token", predicted.time_to_first_token, measured.time_to_first_token),
        ("per output token", predicted.time_per_output_token, measured.time_per_output_token),
    ):
        for percentile in ("p50", "p90", "p99"):
            yield f"{name}, {percentile}, s", getattr(ours, percentile), getattr(theirs, percentile)
