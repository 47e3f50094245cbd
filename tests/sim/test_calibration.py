"""A calibration from end to end, with few requests. How well it predicts depends on the machine."""

from __future__ import annotations

import torch

from minipaged.loading.loader import load_model
from minipaged.sim.calibration import calibrate
from minipaged.view.calibration_report import compared


def test_a_calibration_predicts_the_steps_of_a_burst_exactly() -> None:
    told: list[str] = []
    model = load_model("tiny", dtype=torch.float32, device=torch.device("cpu"))
    found = calibrate(model, num_requests=25, seed=0, tell=told.append)
    at_once, over_time = found.predictions
    rows = {name: (predicted, measured) for name, predicted, measured in compared(at_once)}
    assert rows["steps"][0] == rows["steps"][1] > 0
    assert rows["preemptions"][0] == rows["preemptions"][1]
    for each in (at_once, over_time):
        assert each.predicted.num_requests == each.measured.num_requests == 25
        assert each.predicted.output_tokens == each.measured.output_tokens
    assert found.num_steps > 100
    assert len(told) == 5
