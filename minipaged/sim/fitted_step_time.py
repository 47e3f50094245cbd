"""FittedStepTime: the time of a step as a sum, fitted to steps of a real engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from minipaged.errors import ConfigError
from minipaged.sim.step_time import StepLoad


@dataclass(frozen=True)
class FittedStepTime:
    """A `StepTime` that is a sum of five products. All of its numbers are seconds.

    Attributes:
        per_step: what each step takes.
        per_seq: for each of its sequences.
        per_token: for each token that goes through the layers.
        per_kv_token: for each token whose keys and values attention reads.
        per_pair: for each pair of a query and a key.
    """

    per_step: float
    per_seq: float
    per_token: float
    per_kv_token: float
    per_pair: float

    def __call__(self, load: StepLoad) -> float:
        return (
            self.per_step
            + self.per_seq * load.num_seqs
            + self.per_token * load.num_tokens
            + self.per_kv_token * load.num_kv_tokens
            + self.per_pair * load.num_pairs
        )

    @classmethod
    def fit(cls, loads: Sequence[StepLoad], seconds: Sequence[float]) -> FittedStepTime:
        """The sum with the smallest squared errors, of which no part is negative.

        A part that would be negative is left out, and the others are fitted again: no work gives time back.

        Args:
            loads: what each step computed.
            seconds: how long it took.

        Raises:
            ConfigError: there are fewer steps than parts, or the two differ in number.
        """
        names = [field.name for field in fields(cls)]
        if len(loads) != len(seconds) or len(loads) < len(names):
            raise ConfigError(
                f"a fit of {len(names)} numbers needs as many steps at least, each with its time; there are "
                f"{len(loads)} steps and {len(seconds)} times"
            )
        counts = np.array(
            [[1, each.num_seqs, each.num_tokens, each.num_kv_tokens, each.num_pairs] for each in loads],
            dtype=np.float64,
        )  # [steps, parts]
        kept = list(range(len(names)))
        while True:
            found, *_ = np.linalg.lstsq(counts[:, kept], np.asarray(seconds, dtype=np.float64))
            if (found >= 0).all():
                break
            del kept[int(np.argmin(found * counts[:, kept].mean(axis=0)))]
        values = dict.fromkeys(names, 0.0)
        values |= {names[part]: float(value) for part, value in zip(kept, found, strict=True)}
        return cls(**values)
