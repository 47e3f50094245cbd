"""Measuring how much GPU memory a step needs in addition to weights and KV cache, by running a step.

The KV cache gets the rest of `gpu_memory_utilization` after the weights and the largest step. vLLM measures
the step in the same way (`Worker.determine_available_memory` in vllm/v1/worker/gpu_worker.py).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minipaged.model.decoder import Decoder
from minipaged.runner.capture import on_side_stream
from minipaged.runner.decode_graphs import decode_buckets
from minipaged.sampling.params import SamplingParams
from minipaged.sampling.sampler import SamplingRow, sample

BYTES_PER_GRAPH = 8 * 2**20
"""Bytes reserved for each CUDA graph: the driver's own memory, and the partial results of split decodes."""

PeakBytes = Callable[[Callable[[], None]], int]
"""Runs a function, and returns its peak memory on the device, in bytes."""


def step_bytes(
    decoder: Decoder,
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    with_graphs: bool,
    peak_bytes: PeakBytes | None = None,
) -> int:
    """The bytes that steps need in addition to weights and KV cache.

    The largest step uses the whole token budget and samples for all sequences. Captured decode steps share
    a separate memory pool, which is as large as the largest of them needs.

    Args:
        decoder: the loaded model.
        max_num_batched_tokens: the token budget.
        max_num_seqs: the most sequences in one step.
        with_graphs: whether decode steps are captured.
        peak_bytes: measures the peak memory; by default from the CUDA allocator.
    """
    meter = peak_bytes or _CudaMeter(decoder.device)
    num_seqs = min(max_num_seqs, max_num_batched_tokens)
    needed = meter(lambda: run_step(decoder, max_num_batched_tokens, num_seqs))
    if with_graphs:
        buckets = decode_buckets(max_num_seqs)
        needed += meter(lambda: run_captured_step(decoder, buckets[-1])) + len(buckets) * BYTES_PER_GRAPH
    return needed


@torch.inference_mode()
def run_step(decoder: Decoder, num_tokens: int, num_rows: int) -> None:
    """Run a forward pass without a cache, and sample with every feature of the sampler.

    Args:
        decoder: the model.
        num_tokens: T, the number of tokens to compute.
        num_rows: R, the number of rows to sample; at most T.
    """
    token_ids = torch.zeros(num_tokens, dtype=torch.int64, device=decoder.device)  # [T]
    hidden = decoder(token_ids, torch.arange(num_tokens, device=decoder.device), _no_attention)
    if num_rows:
        params = SamplingParams(temperature=1.0, top_p=0.9, top_k=50, min_p=0.01, logprobs=1)
        row = SamplingRow(params=params, prompt_token_ids=(), output_token_ids=(), uniform=0.5)
        sample(decoder.logits(hidden[:num_rows]), [row] * num_rows)


def run_captured_step(decoder: Decoder, num_tokens: int) -> None:
    """Run a forward pass on another stream, as a capture does. cuBLAS allocates a workspace for this stream.

    This workspace is not freed. It is not the workspace of the captures: cuBLAS allocates another one of the
    same size for their stream.
    """
    with on_side_stream(decoder.device):
        run_step(decoder, num_tokens, 0)


def _no_attention(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.zeros_like(query)  # [T, num_heads, head_dim]


class _CudaMeter:
    """Measures the memory that the CUDA allocator takes from the device, including gaps between tensors.

    The memory is given back to the device afterwards.
    """

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
