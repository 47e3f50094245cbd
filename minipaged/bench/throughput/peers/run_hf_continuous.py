"""Runs transformers' continuous batching, through its manager."""

from __future__ import annotations

import time

from serve_runs import Job, Served, serve

NO_END_TOKEN = -1


class ContinuousBatching:
    """Each run makes a new manager with an empty cache, before the clock starts."""

    packages: tuple[str, ...] = ("transformers", "torch", "numpy")

    def __init__(self, job: Job) -> None:
        import torch
        from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

        torch.set_num_threads(job.threads)
        self._model = AutoModelForCausalLM.from_pretrained(
            job.model, dtype=getattr(torch, job.dtype), local_files_only=True
        ).eval()
        # The cache has pages of the default size.
        page_bytes = ContinuousBatchingConfig().page_size * job.kv_bytes_per_token
        self._num_blocks = -(-job.kv_cache_bytes // page_bytes)
        self._generation = GenerationConfig(do_sample=False, eos_token_id=NO_END_TOKEN, pad_token_id=0)
        self.settings: dict[str, str | int | float | None] = {
            "attention": self._model.config._attn_implementation,
            "num_blocks": self._num_blocks,
            "threads": torch.get_num_threads(),
        }

    def run(self, prompts: list[list[int]], max_tokens: list[int]) -> Served:
        """See `serve_runs.Engine`."""
        from transformers import ContinuousBatchingConfig

        manager = self._model.init_continuous_batching(
            generation_config=self._generation,
            continuous_batching_config=ContinuousBatchingConfig(
                num_blocks=self._num_blocks, max_batch_tokens=2048, allow_block_sharing=True
            ),
        )
        manager.warmup()
        manager.start()
        outputs: dict[str, list[int]] = {}
        try:
            began = time.perf_counter()
            for number, (prompt, count) in enumerate(zip(prompts, max_tokens, strict=True)):
                manager.add_request(
                    prompt, request_id=str(number), max_new_tokens=count, eos_token_id=NO_END_TOKEN
                )
            while len(outputs) < len(prompts):
                result = manager.get_result(timeout=1)
                if result is None:
                    if not manager.is_running():
                        raise RuntimeError("the generation thread has ended")
                elif result.error is not None:
                    raise RuntimeError(f"request {result.request_id}: {result.error}")
                elif result.is_finished():
                    outputs[result.request_id] = list(result.generated_tokens)
            seconds = time.perf_counter() - began
        finally:
            manager.stop(block=True, timeout=10)
        return Served([outputs[str(number)] for number in range(len(prompts))], seconds)


if __name__ == "__main__":
    serve(ContinuousBatching)
