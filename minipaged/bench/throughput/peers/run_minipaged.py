"""Runs our own engine, as one of the contestants."""

from __future__ import annotations

import time
from typing import cast

from serve_runs import Job, Served, serve

from minipaged.choices import DType
from minipaged.config import EngineConfig
from minipaged.options import EngineOptions
from minipaged.sampling.params import SamplingParams


class Minipaged:
    """`LLMEngine`, with all requests queued at once."""

    packages: tuple[str, ...] = ("minipaged", "torch", "numba", "numpy")

    def __init__(self, job: Job) -> None:
        import torch

        from minipaged.engine.llm_engine import LLMEngine

        torch.set_num_threads(job.threads)
        options = EngineOptions(
            dtype=cast(DType, job.dtype),
            device="cpu",
            max_model_len=job.max_model_len,
            kv_cache_memory_bytes=job.kv_cache_bytes,
        )
        if job.stage is None:
            config = EngineConfig(job.model, **options)
        else:
            config = EngineConfig.at_stage(job.stage, job.model, **options)
        self._engine = LLMEngine(config)
        self.settings: dict[str, str | int | float | None] = {
            "stage": job.stage,
            "kv_layout": config.kv_layout,
            "prefix_caching": str(config.caches_prefixes),
            "num_blocks": self._engine.memory_plan.num_blocks,
            "threads": torch.get_num_threads(),
        }

    def run(self, prompts: list[list[int]], max_tokens: list[int]) -> Served:
        """See `serve_runs.Engine`."""
        engine = self._engine
        engine.reset_prefix_cache()
        before = engine.stats()
        outputs: dict[str, list[int]] = {}
        began = time.perf_counter()
        for number, (prompt, count) in enumerate(zip(prompts, max_tokens, strict=True)):
            params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
            engine.add_request(str(number), {"prompt_token_ids": prompt}, params)
        while engine.has_unfinished_requests():
            for processor in engine.advance():
                if processor.request.is_finished:
                    output = processor.build()
                    outputs[output.request_id] = list(output.outputs[0].token_ids)
        seconds = time.perf_counter() - began
        after = engine.stats()
        return Served(
            outputs=[outputs[str(number)] for number in range(len(prompts))],
            seconds=seconds,
            details={
                "num_steps": after.num_steps - before.num_steps,
                "prefix_cache_hits": after.prefix_cache_hits - before.prefix_cache_hits,
                "num_preemptions": after.num_preemptions - before.num_preemptions,
            },
        )


if __name__ == "__main__":
    serve(Minipaged)
