"""Steps for the Triton kernels, on the kernels' device, with the expected outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from hypothesis import strategies as st
from torch import Tensor

from minipaged.attention.reference import attend_one, gather
from minipaged.triton_kernels.gpu import Gpu
from tests.attention.ragged import Heads, Span, Step, make_step

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# (absolute, relative), as in tests/cpu/attention/test_attention.py.
TOLERANCE = {torch.float32: (1e-5, 0.0), torch.bfloat16: (2e-2, 2**-8), torch.float16: (4e-3, 2**-10)}

EDGES = sorted({edge + near for edge in (16, 32, 64, 128) for near in (-1, 0, 1)})
SHORT = st.sampled_from([0, 1, 2, 3, *EDGES])


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Within the block, `torch.empty` and its variants return NaN instead of old memory contents."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def gpu_with(num_multiprocessors: int) -> Gpu:
    """The kernels' GPU, with another number of multiprocessors: decodes are split more, or less."""
    return dataclasses.replace(Gpu.of(DEVICE), num_multiprocessors=num_multiprocessors)


def on_device(step: Step) -> Step:
    """The same step on the device where the kernels run."""
    metadata = step.metadata
    tensors = {
        field.name: value.to(DEVICE)
        for field in dataclasses.fields(metadata)
        if isinstance(value := getattr(metadata, field.name), Tensor)
    }
    return Step(
        step.query.to(DEVICE),
        step.kv_layer.to(DEVICE),
        dataclasses.replace(metadata, **tensors),
        step.heads,
    )


def expected_output(step: Step) -> Tensor:
    """The reference's output, sequence by sequence. A sequence without tokens gives zeros."""
    output = torch.zeros_like(step.query)
    starts = step.metadata.query_start_list
    for s, seq_len in enumerate(step.metadata.seq_lens_list):
        rows = slice(starts[s], starts[s + 1])
        if seq_len > 0 and rows.start < rows.stop:
            keys, values = gather(step.kv_layer, step.metadata.block_tables[s], seq_len)
            output[rows] = attend_one(step.query[rows], keys, values, step.heads.scale)
    return output


def assert_right(step: Step, output: Tensor) -> None:
    """Check that an output equals the reference's, within the tolerance of its dtype."""
    assert output.shape == step.query.shape
    assert output.dtype == step.query.dtype
    atol, rtol = TOLERANCE[output.dtype]
    torch.testing.assert_close(output, expected_output(step), atol=atol, rtol=rtol)


@st.composite
def triton_steps(draw: st.DrawFn) -> Step:
    """1 to 9 sequences: decodes (some of length 0), prompts, and chunks on top of cached tokens.

    Most are short, since the interpreter takes a hundredth of a second for each tile.
    """
    num_seqs = draw(st.integers(1, 9))
    lengths = [draw(SHORT) for _ in range(num_seqs)]
    if draw(st.booleans()):
        lengths[0] = draw(st.integers(1, 600))
    spans: list[Span] = []
    for seq_len in lengths:
        kind = draw(st.sampled_from(["decode", "decode", "prompt", "chunk"]))
        num_queries = {"decode": 1, "prompt": seq_len}.get(kind) or draw(st.integers(1, max(1, seq_len)))
        num_queries = min(num_queries, 70)
        spans.append(Span(num_queries, seq_len, draw(st.integers(0, 2)), draw(st.integers(0, 3))))
    heads = Heads(
        num_kv_heads=draw(st.integers(1, 2)) if sum(lengths) < 300 else 1,
        group=draw(st.sampled_from([1, 3, 4, 7, 8])),
        head_dim=draw(st.sampled_from([64, 80, 96, 128, 256])),
    )
    return make_step(
        spans,
        heads,
        draw(st.sampled_from([1, 2, 5, 16, 32, 64, 128])),
        seed=draw(st.integers(0, 999)),
        dtype=draw(st.sampled_from([torch.float32, torch.bfloat16])),
        extra_columns=draw(st.integers(0, 2)),
    )
