"""The ladder: the engine of every stage serves the same workload with the same KV memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace

from minipaged.bench.stage_run import OnTokens, Outputs, StageResult, run_stage
from minipaged.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine
from minipaged.engine.memory_plan import plan_memory
from minipaged.errors import ConfigError
from minipaged.events import Observer
from minipaged.loading.loader import LoadedModel
from minipaged.options import EngineOptions
from minipaged.sim.workload import Workload

BASE_STAGE = 2
"""The stage with the contiguous cache. The other stages are compared with it."""

STAGE_NAMES = {
    1: "no cache",
    2: "contiguous cache",
    3: "block tables",
    4: "copy-on-write",
    5: "fast attention",
    6: "continuous batching",
    7: "preemption",
    8: "prefix caching",
}


@dataclass(frozen=True)
class Difference:
    """The first difference between the tokens of two stages, which should be equal.

    Attributes:
        stage: the stage that differs.
        reference: the stage with the expected tokens.
        request: number of the request, from 0.
        position: position of the first different output token, from 0.
    """

    stage: int
    reference: int
    request: int
    position: int

    def __str__(self) -> str:
        return (
            f"stages {self.reference} and {self.stage} differ from output token {self.position} of "
            f"request {self.request} on"
        )


@dataclass(frozen=True)
class WorkloadResult:
    """A workload, and the result of each stage.

    Attributes:
        name: what the workload is like.
        num_requests, num_prompt_tokens, num_output_tokens, num_prefix_tokens: counts of the workload.
        num_slots: number of tokens that the KV memory can hold.
        stages: the stages' results in order, at least one.
        difference: the first difference in tokens; `None` if all stages gave the same tokens.
    """

    name: str
    num_requests: int
    num_prompt_tokens: int
    num_output_tokens: int
    num_prefix_tokens: int
    num_slots: int
    stages: tuple[StageResult, ...]
    difference: Difference | None

    @property
    def base(self) -> StageResult:
        """The stage that the others are compared with: stage 2, or the first one if stage 2 was not run."""
        return next((each for each in self.stages if each.stage == BASE_STAGE), self.stages[0])

    def ratio(self, result: StageResult) -> float:
        """The output tokens per second of `result`, divided by those of the base."""
        return result.tokens_per_second / self.base.tokens_per_second


@dataclass(frozen=True)
class LadderResult:
    """All measurements, and the settings with which they were made.

    Attributes:
        model, dtype, device: the model that was run, its dtype, and its device.
        num_threads: threads that the engines compute with, on the CPU.
        seed: seed of the workloads.
        block_size: tokens per block.
        max_model_len: tokens of the longest request, prompt and output together. The workloads are scaled
            to it.
        workloads: the result of each workload.
    """

    model: str
    dtype: str
    device: str
    num_threads: int
    seed: int
    block_size: int
    max_model_len: int
    workloads: tuple[WorkloadResult, ...]

    def to_json(self) -> str:
        """All fields by name. Each stage also has its `tokens_per_second` and its `ratio` to the base."""
        document = asdict(self)
        for result, workload in zip(self.workloads, document["workloads"], strict=True):
            for stage, entry in zip(result.stages, workload["stages"], strict=True):
                entry["tokens_per_second"] = stage.tokens_per_second
                entry["ratio"] = result.ratio(stage)
        return json.dumps(document, indent=2) + "\n"


def _not_observing(stage: int) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class Ladder:
    """The settings that all stages have in common.

    Attributes:
        model: the model. It is loaded once, and the engines share it.
        num_usable_blocks: the size of the KV memory, in blocks that can hold tokens. A paged pool gets one
            more block, the null block. So every layout can hold the same number of tokens.
        max_model_len: tokens of the longest request, prompt and output together.
        options: the other settings, which are the same for all engines.
    """

    model: LoadedModel
    num_usable_blocks: int
    max_model_len: int
    options: EngineOptions

    def config(self, stage: int) -> EngineConfig:
        """The settings of one stage.

        Raises:
            ConfigError: there is no such stage, or the options contradict it.
        """
        config = EngineConfig.at_stage(stage, self.model.name, **self.options)
        null_block = 1 if config.kv_layout == "paged" else 0
        num_blocks = self.num_usable_blocks + null_block
        return replace(config, num_blocks=num_blocks, max_model_len=self.max_model_len)

    def check(self, stages: Sequence[int]) -> None:
        """Check that each stage's engine can be made, before the first stage runs.

        Raises:
            ConfigError: the engine of a stage cannot be made.
        """
        for stage in stages:
            decoder = self.model.decoder
            plan_memory(self.config(stage), self.model.config, decoder.dtype, decoder.device)

    def run(
        self,
        workload: Workload,
        stages: Sequence[int],
        watch: Callable[[int], OnTokens],
        observing: Callable[[int], AbstractContextManager[Observer | None]] = _not_observing,
    ) -> WorkloadResult:
        """Run the stages one after the other.

        Args:
            workload: the requests to serve.
            stages: the stages to run, in this order.
            watch: called with each stage before it runs. Returns the function that shows the progress.
            observing: called with each stage. Returns a context manager that gives the observer of the
                stage's engine.

        Raises:
            ConfigError: `stages` is empty, or the engine of a stage cannot be made.
            PromptError, RequestTooLargeError: a request cannot be served.
        """
        if not stages:
            raise ConfigError("a ladder needs at least one stage")
        results: list[StageResult] = []
        reference: Outputs | None = None
        difference: Difference | None = None
        num_slots = self.num_usable_blocks * self.config(stages[0]).block_size
        for stage in stages:
            with observing(stage) as observer:
                engine = LLMEngine(self.config(stage), self.model, observer=observer)
                result, outputs = run_stage(stage, engine, workload, watch(stage))
            results.append(result)
            reference = outputs if reference is None else reference
            difference = difference or find_difference(stages[0], reference, stage, outputs)
        return WorkloadResult(
            name=workload.name,
            num_requests=len(workload.requests),
            num_prompt_tokens=workload.num_prompt_tokens,
            num_output_tokens=workload.num_output_tokens,
            num_prefix_tokens=workload.num_prefix_tokens,
            num_slots=num_slots,
            stages=tuple(results),
            difference=difference,
        )


def find_difference(reference: int, expected: Outputs, stage: int, outputs: Outputs) -> Difference | None:
    """The first token of `stage` that differs from the token of stage `reference`."""
    for request, (wanted, got) in enumerate(zip(expected, outputs, strict=True)):
        if wanted != got:
            same = [a == b for a, b in zip(wanted, got, strict=False)]
            position = same.index(False) if False in same else len(same)
            return Difference(stage, reference, request, position)
    return None
