"""minipaged: an LLM inference engine with a paged KV cache, built to be read.

>>> from minipaged import LLM, SamplingParams
>>> llm = LLM("tiny")
>>> outputs = llm.generate(["Once upon a time"], SamplingParams(temperature=0, max_tokens=32))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minipaged.config import EngineConfig
    from minipaged.engine.llm_engine import LLMEngine
    from minipaged.engine.outputs import BeamSearchOutput, BeamSearchSequence, CompletionOutput, RequestOutput
    from minipaged.engine.stats import EngineStats
    from minipaged.errors import (
        ConfigError,
        EngineBusyError,
        ForkedProcessError,
        InvariantError,
        MinipagedError,
        ModelNotFoundError,
        OutOfBlocksError,
        PromptError,
        RequestIdError,
        RequestTooLargeError,
        SamplingParamsError,
        UnsupportedModelError,
        WeightsError,
    )
    from minipaged.kv.breakdown import MemoryBreakdown
    from minipaged.llm import LLM
    from minipaged.sampling.beam_params import BeamSearchParams
    from minipaged.sampling.params import SamplingParams

__version__ = "0.1.0"

# A name is imported at its first use, so that `import minipaged` does not import torch.
_HOME = {
    "LLM": "minipaged.llm",
    "LLMEngine": "minipaged.engine.llm_engine",
    "EngineStats": "minipaged.engine.stats",
    "MemoryBreakdown": "minipaged.kv.breakdown",
    "EngineConfig": "minipaged.config",
    "BeamSearchParams": "minipaged.sampling.beam_params",
    "BeamSearchOutput": "minipaged.engine.outputs",
    "BeamSearchSequence": "minipaged.engine.outputs",
    "SamplingParams": "minipaged.sampling.params",
    "RequestOutput": "minipaged.engine.outputs",
    "CompletionOutput": "minipaged.engine.outputs",
    "MinipagedError": "minipaged.errors",
    "ConfigError": "minipaged.errors",
    "SamplingParamsError": "minipaged.errors",
    "PromptError": "minipaged.errors",
    "RequestTooLargeError": "minipaged.errors",
    "RequestIdError": "minipaged.errors",
    "EngineBusyError": "minipaged.errors",
    "ForkedProcessError": "minipaged.errors",
    "ModelNotFoundError": "minipaged.errors",
    "UnsupportedModelError": "minipaged.errors",
    "WeightsError": "minipaged.errors",
    "OutOfBlocksError": "minipaged.errors",
    "InvariantError": "minipaged.errors",
}

__all__ = [
    "LLM",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "CompletionOutput",
    "ConfigError",
    "EngineBusyError",
    "EngineConfig",
    "EngineStats",
    "ForkedProcessError",
    "InvariantError",
    "LLMEngine",
    "MemoryBreakdown",
    "MinipagedError",
    "ModelNotFoundError",
    "OutOfBlocksError",
    "PromptError",
    "RequestIdError",
    "RequestOutput",
    "RequestTooLargeError",
    "SamplingParams",
    "SamplingParamsError",
    "UnsupportedModelError",
    "WeightsError",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'minipaged' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
