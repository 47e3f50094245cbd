"""The part of `minipaged bench gpu` that serves its workload with transformers' continuous batching."""

from __future__ import annotations

import math
import time

import torch

from minipaged.bench.gpu_engines import model_folder
from minipaged.bench.gpu_part import PartResult, Parts, Row
from minipaged.bench.gpu_workload import FULL, REHEARSAL, EngineSizes, nano_vllm_workload

MAX_SECONDS = 70.0
NO_END_TOKEN = -1


def make_parts(device: torch.device, *, rehearse: bool) -> Parts:
    """The parts to run, by name; see `gpu_groups`."""
    if rehearse:
        return {"transformers": lambda: throughput(REHEARSAL, device, math.inf)}
    return {"transformers": lambda: throughput(FULL, device, MAX_SECONDS)}


def throughput(sizes: EngineSizes, device: torch.device, max_seconds: float) -> PartResult:
    """Measure output tokens per second on nano-vllm's workload.

    The model has the same shape and random weights. Sampling is greedy. Other settings are the defaults.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

    with model_folder(sizes) as folder:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).to(device).eval()
    workload = nano_vllm_workload(sizes)
    generation = GenerationConfig(do_sample=False, eos_token_id=NO_END_TOKEN, pad_token_id=0)
    batching = ContinuousBatchingConfig()
    if sizes.num_blocks is not None:  # the default takes most of the memory
        batching = ContinuousBatchingConfig(
            num_blocks=sizes.num_blocks, max_batch_tokens=sizes.longest_request
        )
    manager = model.init_continuous_batching(
        generation_config=generation, continuous_batching_config=batching
    )
    manager.warmup()
    manager.start()
    num_tokens, num_finished = 0, 0
    try:
        start = time.perf_counter()
        for number, request in enumerate(workload.requests):
            manager.add_request(
                list(request.prompt_token_ids), request_id=str(number), max_new_tokens=request.max_tokens
            )
        while num_finished < len(workload.requests) and time.perf_counter() - start < max_seconds:
            result = manager.get_result(timeout=1)
            if result is None:
                if not manager.is_running():
                    raise RuntimeError("the generation thread of transformers has ended")
            elif result.error is not None:
                raise RuntimeError(f"request {result.request_id}: {result.error}")
            elif result.is_finished():
                num_finished += 1
                num_tokens += len(result.generated_tokens)
        seconds = time.perf_counter() - start
    finally:
        manager.stop(block=True, timeout=10)
    row: Row = {"requests": len(workload.requests), "finished": num_finished, "output tokens": num_tokens}
    row |= {"of": workload.num_output_tokens, "seconds": seconds, "output tokens/s": num_tokens / seconds}
    headline = f"{num_tokens / seconds:,.0f} output tokens/s"
    in_time = num_finished == len(workload.requests)
    if not in_time:
        headline += f", {num_finished} of {len(workload.requests)} requests in time"
    return PartResult(headline, [row], failed=not in_time)
