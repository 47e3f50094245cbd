"""What a step takes of a GPU's memory beside weights and cache, found out by running one.

As vLLM does at its start (`Worker.determine_available_memory` in vllm/v1/worker/gpu_worker.py): what
is left of `gpu_memory_utilization` after the weights and the largest step is for the KV cache.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minipaged.model.decoder import Decoder
from minipaged.runner.decode_graphs import decode_buckets
from minipaged.sampling.params import SamplingParams
from minipaged.sampling.sampler import SamplingRow, sample

BYTES_PER_GRAPH = 8 * 2**20
"""Set aside for what the driver keeps of each CUDA graph, and for the parts of split decodes."""

PeakBytes = Callable[[Callable[[], None]], int]
"""Runs something, and says how many bytes of the device it took at its peak."""


def step_bytes(
    decoder: Decoder,
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    with_graphs: bool,
    peak_bytes: PeakBytes | None = None,
) -> int:
    """Bytes that must stay free beside weights and cache.

    The largest step has the whole token budget, and samples for all sequences. Captured decode steps
    have a pool of their own, as large as the largest of them needs.

    Args:
        decoder: the model, loaded.
        max_num_batched_tokens: the token budget.
        max_num_seqs: most sequences in one step.
        with_graphs: whether decode steps are captured.
        peak_bytes: the meter; the CUDA allocator's if not given.
    """
    meter = peak_bytes or _CudaMeter(decoder.device)
    num_seqs = min(max_num_seqs, max_num_batched_tokens)
    needed = meter(lambda: run_step(decoder, max_num_batched_tokens, num_seqs))
    if with_graphs:
        buckets = decode_buckets(max_num_seqs)
        needed += meter(lambda: run_step(decoder, buckets[-1], 0)) + len(buckets) * BYTES_PER_GRAPH
    return needed


@torch.inference_mode()
def run_step(decoder: Decoder, num_tokens: int, num_rows: int) -> None:
    """A forward pass without a cache, and samples that need all that the sampler has.

    Args:
        decoder: the model.
        num_tokens: T, tokens that are computed.
        num_rows: R, rows that are sampled, at most T.
    """
    token_ids = torch.zeros(num_tokens, dtype=torch.int64, device=decoder.device)  # [T]
    hidden = decoder(token_ids, torch.arange(num_tokens, device=decoder.device), _no_attention)
    if num_rows:
        params = SamplingParams(temperature=1.0, top_p=0.9, top_k=50, min_p=0.01, logprobs=1)
        row = SamplingRow(params=params, prompt_token_ids=(), output_token_ids=(), uniform=0.5)
        sample(decoder.logits(hidden[:num_rows]), [row] * num_rows)


def _no_attention(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.zeros_like(query)  # [T, num_heads, head_dim]


class _CudaMeter:
    """What the allocator takes from the device, gaps between tensors included. It gives all back."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __call__(self, run: Callable[[], None]) -> int:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_reserved(self._device)
        run()
        torch.cuda.synchronize(self._device)
        taken = torch.cuda.max_memory_reserved(self._device) - before
        torch.cuda.empty_cache()
        return taken
