"""Runs transformers' `generate`. All requests are one batch, padded to the longest request."""

from __future__ import annotations

import time

from serve_runs import Job, Served, serve


class StaticBatch:
    """Prompts are padded on the left. Tokens past a request's own length are computed, then dropped."""

    packages: tuple[str, ...] = ("transformers", "torch", "numpy")

    def __init__(self, job: Job) -> None:
        import torch
        from transformers import AutoModelForCausalLM, GenerationConfig

        torch.set_num_threads(job.threads)
        self._model = AutoModelForCausalLM.from_pretrained(
            job.model, dtype=getattr(torch, job.dtype), local_files_only=True
        ).eval()
        self._model.generation_config = GenerationConfig()  # no end token: nothing ends early
        self.settings: dict[str, str | int | float | None] = {
            "attention": self._model.config._attn_implementation,
            "threads": torch.get_num_threads(),
        }

    def run(self, prompts: list[list[int]], max_tokens: list[int]) -> Served:
        """See `serve_runs.Engine`."""
        import torch
        from transformers import GenerationConfig

        longest, most = max(map(len, prompts)), max(max_tokens)
        padded = torch.tensor([[0] * (longest - len(each)) + each for each in prompts])  # [B, longest]
        mask = torch.tensor([[0] * (longest - len(each)) + [1] * len(each) for each in prompts])
        settings = GenerationConfig(do_sample=False, max_new_tokens=most, pad_token_id=0)
        began = time.perf_counter()
        with torch.inference_mode():
            output = self._model.generate(  # pyright: ignore[reportAttributeAccessIssue]
                padded, attention_mask=mask, generation_config=settings
            )
        seconds = time.perf_counter() - began
        generated = output[:, longest:].tolist()
        return Served(
            outputs=[row[:count] for row, count in zip(generated, max_tokens, strict=True)],
            seconds=seconds,
            num_computed_tokens=len(prompts) * (longest + most),
        )


if __name__ == "__main__":
    serve(StaticBatch)
