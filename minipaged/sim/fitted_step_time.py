"""FittedStepTime: the time of a step as a sum, fitted to steps of a real engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from minipaged.errors import ConfigError
from minipaged.sim.step_time import StepLoad

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FittedStepTime:
    """A `StepTime` that is a sum of six products of a count and a time. All attributes are times in seconds.

    Attributes:
        per_step: what each step takes.
        per_prompt_step: what a step takes in addition if it computes tokens of a prompt. The engine records
            the other steps once and then replays them, which is faster.
        per_seq: what a step takes for each of its sequences.
        per_token: what a step takes for each token that goes through the layers.
        per_kv_token: what a step takes for each token whose keys and values attention reads.
        per_pair: what a step takes for each pair of a query and a key.
    """

    per_step: float
    per_prompt_step: float
    per_seq: float
    per_token: float
    per_kv_token: float
    per_pair: float

    def __call__(self, load: StepLoad) -> float:
        return sum(
            part * count
            for part, count in zip(
                (getattr(self, field.name) for field in fields(self)), _counts(load), strict=True
            )
        )

    @classmethod
    def fit(cls, loads: Sequence[StepLoad], seconds: Sequence[float]) -> FittedStepTime:
        """Fit the sum by least squares, so that no part of it is negative.

        A long step varies more than a short one. So a first fit estimates how long each step should take,
        and in a second fit an error counts as a share of that estimate.

        Args:
            loads: what each step computed.
            seconds: how long it took.

        Raises:
            ConfigError: there are fewer steps than parts, or `loads` and `seconds` differ in length.
        """
        names = [field.name for field in fields(cls)]
        if len(loads) != len(seconds) or len(loads) < len(names):
            raise ConfigError(
                f"a fit of {len(names)} numbers needs as many steps at least, each with its time; there are "
                f"{len(loads)} steps and {len(seconds)} times"
            )
        counts = np.array([_counts(load) for load in loads], dtype=np.float64)  # [steps, parts]
        times = np.asarray(seconds, dtype=np.float64)  # [steps]
        expected = counts @ _without_negatives(counts, times)
        scale = np.maximum(expected, max(times.mean() / 100, 1e-12))
        found = _without_negatives(counts / scale[:, None], times / scale)
        return cls(**dict(zip(names, found.tolist(), strict=True)))


def _counts(load: StepLoad) -> tuple[int, ...]:
    """The counts by which the parts of the sum are multiplied."""
    computes_prompt = int(load.num_tokens > load.num_seqs)
    return (1, computes_prompt, load.num_seqs, load.num_tokens, load.num_kv_tokens, load.num_pairs)


def _without_negatives(counts: FloatArray, times: FloatArray) -> FloatArray:
    """Least squares. A part that would be negative is left out, and the others are fitted again.

    Args:
        counts: `[steps, parts]`.
        times: `[steps]`.

    Returns:
        `[parts]`; 0 for those that were left out.
    """
    kept = list(range(counts.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(counts[:, kept], times)
        if (found >= 0).all():
            break
        del kept[int(np.argmin(found * counts[:, kept].mean(axis=0)))]
    parts = np.zeros(counts.shape[1])
    parts[kept] = found
    return parts
