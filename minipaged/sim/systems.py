"""The systems that the paper compares, as settings of this engine."""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.choices import PreemptionMode, ReserveRule
from minipaged.config import EngineConfig
from minipaged.errors import ConfigError
from minipaged.options import EngineOptions

MAX_NUM_SEQS = 256
"""The most sequences in a batch. Fig. 13 has batches of 132 on average, so the default of 128 would be too
few."""


@dataclass(frozen=True)
class System:
    """A system, as settings of the engine.

    Attributes:
        name: its name on the command line.
        title: its name in tables.
        options: the settings.
        answers_together: whether all answers of a batch are delivered when its last request ends.
    """

    name: str
    title: str
    options: EngineOptions
    answers_together: bool = False

    def config(self, **options: object) -> EngineConfig:
        """The system's settings, some of which `options` replaces."""
        return EngineConfig(**({"max_num_seqs": MAX_NUM_SEQS} | dict(self.options) | options))  # type: ignore[arg-type]


def _orca(rule: ReserveRule) -> EngineOptions:
    return EngineOptions(kv_layout="contiguous", reserve=rule, region_allocator="buddy")


def _paged(mode: PreemptionMode, *, caches: bool = False) -> EngineOptions:
    return EngineOptions(preemption_mode=mode, enable_prefix_caching=caches)


SYSTEMS = (
    System(
        "fastertransformer",
        "FasterTransformer",
        EngineOptions(kv_layout="contiguous", region_allocator="buddy", batching="static"),
        answers_together=True,
    ),
    System("orca-max", "Orca (Max)", _orca("max")),
    System("orca-pow2", "Orca (Pow2)", _orca("pow2")),
    System("orca-oracle", "Orca (Oracle)", _orca("oracle")),
    System("vllm", "vLLM of the paper", _paged("recompute")),
    System("vllm-swap", "vLLM, swapping", _paged("swap")),
    System("minipaged", "minipaged, with its prefix cache", _paged("recompute", caches=True)),
)


def find_system(name: str) -> System:
    """The system of this name.

    Raises:
        ConfigError: there is none; the message lists all.
    """
    for system in SYSTEMS:
        if system.name == name:
            return system
    raise ConfigError(f"{name!r} is not a system: {', '.join(system.name for system in SYSTEMS)}")
