"""The whole benchmark: load the model, write it for the contestants, measure the machine, run the match."""

from __future__ import annotations

import platform
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from minipaged.bench.throughput.bounds import MachineRates, Matrices, most_tokens_per_second
from minipaged.bench.throughput.child import Message
from minipaged.bench.throughput.contestants import Contestant, ModelFormat
from minipaged.bench.throughput.export import write_gguf, write_hf_folder
from minipaged.bench.throughput.machine_rates import RatesRequest, measure_in_process
from minipaged.bench.throughput.match import Match, Rules, Tell, warm_up
from minipaged.bench.throughput.results import Details, ThroughputResult
from minipaged.bench.throughput.workloads import WorkloadName, longest_request, make_workload
from minipaged.engine.machine import usable_cpus, usable_memory
from minipaged.kv.size import KVShape, blocks_needed
from minipaged.loading.loader import LoadedModel, load_model
from minipaged.sim.workload import Workload

SEED = 0
LARGEST_BLOCK = 256
"""Tokens in the largest block of any contestant (a page of transformers). The memory for keys and values is
large enough for blocks of this size without sharing, so that no request has to wait."""

BenchDType = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        model: a model as for `LLM`.
        dtype: dtype of weights, activations, keys and values.
        workloads: names of the workloads to serve.
        contestants: the engines to compare, including our own.
        threads: number of threads of each contestant.
        stage: the stage of our engine; `None` for the default engine.
        rules: the rules of the match.
        measures_machine: whether to measure the machine's rates, and compute bounds.
    """

    model: str
    dtype: BenchDType
    workloads: tuple[WorkloadName, ...]
    contestants: tuple[Contestant, ...]
    threads: int
    stage: int | None
    rules: Rules
    measures_machine: bool = True


def run_throughput(plan: Plan, tell: Tell) -> ThroughputResult:
    """Run the benchmark. The contestants' model files are in a temporary folder.

    Args:
        plan: what to measure.
        tell: called with a line of text about each event.

    Raises:
        ConfigError: the model cannot serve a workload.
        ModelNotFoundError, UnsupportedModelError, WeightsError: the model cannot be loaded, or cannot be
            written for the contestants.
    """
    with tempfile.TemporaryDirectory(prefix="minipaged-bench-") as scratch:
        model = load_model(
            plan.model, dtype=getattr(torch, plan.dtype), device=torch.device("cpu"), progress=False
        )
        workloads: dict[WorkloadName, Workload] = {
            name: make_workload(name, model.config, SEED) for name in plan.workloads
        }
        tell(f"writing {plan.model} in {plan.dtype} for the contestants")
        paths = _write(model, {each.model_format for each in plan.contestants}, Path(scratch))
        matrices, config = Matrices.of(model.config), model.config
        del model  # free its memory for the contestants
        job = _job(
            plan, workloads, KVShape(config.num_layers, config.num_kv_heads, config.head_dim, _bytes(plan))
        )
        rates = None
        if plan.measures_machine:
            tell("measuring the machine: reading, and matrix products")
            rates = measure_in_process(RatesRequest(matrices, plan.dtype, plan.threads))
        jobs = {each.name: {**job, "model": str(paths[each.model_format])} for each in plan.contestants}
        with Match(plan.contestants, jobs, plan.rules, tell) as match:
            results = [
                match.run(name, workload, _bound(workload, matrices, plan, rates))
                for name, workload in workloads.items()
            ]
    return ThroughputResult(
        model=plan.model,
        dtype=plan.dtype,
        threads=plan.threads,
        repeats=plan.rules.repeats,
        seed=SEED,
        stage=plan.stage,
        machine=describe_machine(),
        rates=None if rates is None else _as_details(rates),
        contestants=match.records,
        workloads=tuple(results),
    )


def describe_machine() -> Details:
    """The processor, the number of available CPUs, the memory and the operating system."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [
            line.partition(":")[2].strip()
            for line in info.read_text(encoding="utf-8").splitlines()
            if "model name" in line
        ]
        model = names[0] if names else model
    return {
        "processor": model,
        "cpus": usable_cpus(),
        "memory_mib": usable_memory().total // 2**20,
        "system": platform.platform(),
    }


def _write(model: LoadedModel, formats: set[ModelFormat], scratch: Path) -> dict[ModelFormat, Path]:
    paths: dict[ModelFormat, Path] = {}
    if "folder" in formats:
        paths["folder"] = write_hf_folder(model, scratch / "model")
    if "gguf" in formats:
        paths["gguf"] = write_gguf(model, scratch / "model.gguf")
    return paths


def _job(plan: Plan, workloads: dict[WorkloadName, Workload], shape: KVShape) -> Message:
    """The first message to each contestant, without the path of the model."""
    most_tokens = max(_most_kv_tokens(workload) for workload in workloads.values())
    longest = max(longest_request(workload) for workload in workloads.values())
    return {
        "dtype": plan.dtype,
        "threads": plan.threads,
        "max_model_len": longest,
        "max_num_seqs": max(len(workload.requests) for workload in workloads.values()),
        "kv_cache_bytes": most_tokens * shape.bytes_per_token,
        "kv_bytes_per_token": shape.bytes_per_token,
        "stage": plan.stage,
        "warm_up": [warm_up(workload) for workload in workloads.values()],
    }


def _most_kv_tokens(workload: Workload) -> int:
    """How many slots all requests take at full length, plus one block, since some engines reserve one."""
    lengths = [len(each.prompt_token_ids) + each.max_tokens for each in workload.requests]
    return LARGEST_BLOCK * (1 + sum(blocks_needed(length, LARGEST_BLOCK) for length in lengths))


def _bound(workload: Workload, matrices: Matrices, plan: Plan, rates: MachineRates | None) -> float | None:
    if rates is None:
        return None
    return most_tokens_per_second(workload, matrices, _bytes(plan), rates)


def _bytes(plan: Plan) -> int:
    return getattr(torch, plan.dtype).itemsize


def _as_details(rates: MachineRates) -> Details:
    details: Details = {"read_bytes_per_second": rates.read_bytes_per_second}
    for rows, layers, lm_head in zip(
        rates.num_rows, rates.layers_seconds, rates.lm_head_seconds, strict=True
    ):
        details[f"layers_seconds_{rows}_rows"] = layers
        details[f"lm_head_seconds_{rows}_rows"] = lm_head
    return details
