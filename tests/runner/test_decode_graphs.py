"""Captured decode steps give the same tokens, and do not use anything that an earlier step left behind.

These tests need no CUDA graph: a replay calls the captured function again. It reads and writes the same
tensors as on a GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from minipaged import EngineConfig, LLMEngine, SamplingParams
from minipaged.kv.block_pool import NULL_BLOCK
from minipaged.loading.loader import load_model
from minipaged.options import EngineOptions
from minipaged.parts import Parts
from minipaged.runner import decode_steps
from minipaged.runner.decode_graphs import DecodeGraphs
from minipaged.runner.decode_steps import make_capture
from minipaged.triton_kernels.setup import prepare_triton
from tests.engine.driving import assert_all_free, assert_greedy, check_and_poison, greedy, make_engine, run
from tests.model_pairs import Pair

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8], [1], [9, 9], [6, 2, 8, 3, 1]]
LENGTHS = [9, 7, 5, 3, 2]
"""Lengths of the outputs. The batch shrinks from 5 sequences to 1, through all buckets."""


@dataclass
class Rerun:
    """A `Capture` whose replays call the function again. It counts the calls."""

    captured: int = 0
    replays: Counter[int] = field(default_factory=Counter)

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        number = self.captured
        self.captured += 1
        run()

        def replay() -> None:
            self.replays[number] += 1
            run()

        return replay


def make(pair: Pair, capture: Rerun, **options: object) -> LLMEngine:
    defaults: dict[str, object] = {
        "device": "auto",
        "attention_backend": "triton",
        "block_size": 4,
        "num_blocks": 40,
        "max_model_len": 32,
        "max_num_seqs": 5,
        "parts": Parts(capture=capture),
    }
    return make_engine(pair.model, **EngineOptions(**(defaults | options)))  # pyright: ignore[reportArgumentType]


def graphs_of(engine: LLMEngine) -> DecodeGraphs | None:
    steps = engine._runner._decode_steps
    return steps if isinstance(steps, DecodeGraphs) else None


@torch.inference_mode()
def spoil(engine: LLMEngine) -> None:
    """After a step, overwrite everything that the next step must not use.

    The hidden states, and all slots that no sequence owns, become NaN. In the input buffers, the table of
    each row names a block of NaN.
    """
    check_and_poison(engine)
    graphs = graphs_of(engine)
    assert graphs is not None
    graphs._hidden.fill_(float("nan"))
    free = [
        block
        for block in range(1, engine.kv_cache.data.shape[2])
        if engine.kv_cache.data[0, 0, block].isnan().all()
    ]
    graphs._inputs.block_tables.fill_(free[0])
    graphs._inputs.seq_lens.fill_(7)
    graphs._inputs.slot_mapping.fill_(free[0] * engine.config.block_size)


def test_greedy_tokens_over_the_edges_of_buckets(nano_gqa: Pair) -> None:
    capture = Rerun()
    engine = make(nano_gqa, capture)
    params = [greedy(length) for length in LENGTHS]
    for output, length in zip(run(engine, PROMPTS, params, after_step=spoil), LENGTHS, strict=True):
        assert_greedy(nano_gqa.oracle, output, length)
    assert_all_free(engine)
    graphs = graphs_of(engine)
    assert graphs is not None
    assert graphs.buckets == (1, 2, 4, 5)
    # The largest bucket is captured first. Each sequence gets its first token in the first step, which is
    # eager. The next steps have 5, 4, 3, 3, 2, 2, 1 and 1 sequences.
    assert capture.captured == 4
    assert capture.replays == {0: 1, 1: 3, 2: 2, 3: 2}
    assert engine.kv_cache.data[:, :, NULL_BLOCK].eq(0).all(), "padding is stored nowhere, not even there"


def test_steps_that_are_no_decodes_run_eagerly(nano_gqa: Pair) -> None:
    """A chunk of a prompt beside decodes."""
    capture = Rerun()
    engine = make(nano_gqa, capture, max_num_batched_tokens=4, max_num_seqs=4)
    engine.add_request("a", PROMPTS[1], greedy(8))
    engine.step()
    assert not capture.replays
    engine.step()
    assert capture.replays.total() == 1
    engine.add_request("b", PROMPTS[0], greedy(2))
    engine.step()
    assert capture.replays.total() == 1
    while engine.has_unfinished_requests():
        for output in engine.step():
            assert_greedy(nano_gqa.oracle, output)
        spoil(engine)
    assert capture.replays.total() > 1


def test_a_batch_beyond_the_largest_bucket_runs_eagerly(
    nano_gqa: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minipaged.runner.decode_graphs.LARGEST_BUCKET", 2)
    capture = Rerun()
    engine = make(nano_gqa, capture)
    for output in run(engine, PROMPTS[:3], [greedy(4), greedy(3), greedy(2)], after_step=spoil):
        assert_greedy(nano_gqa.oracle, output)
    assert capture.captured == 2
    assert capture.replays == {0: 1, 1: 1}, "with three sequences there is nothing to replay"


def test_the_number_of_splits_is_fixed(nano_gqa: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It depends on the bucket and on the longest possible sequence, not on the sequences of the step.

    Here most splits are empty, and merging them changes nothing.
    """
    prepare_triton(DEVICE)
    from minipaged.triton_kernels import attention as triton_backend
    from minipaged.triton_kernels.attention import TritonAttention
    from minipaged.triton_kernels.gpu import Gpu

    splits: list[tuple[int, int]] = []
    original = triton_backend.paged_decode_split

    def paged_decode_split(
        query: Tensor,
        kv_layer: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        output: Tensor,
        scale: float,
        gpu: Gpu,
        num_splits: int,
    ) -> None:
        splits.append((len(query), num_splits))
        original(query, kv_layer, block_tables, seq_lens, output, scale, gpu, num_splits)

    monkeypatch.setattr(triton_backend, "paged_decode_split", paged_decode_split)
    monkeypatch.setattr(TritonAttention, "_programs_at_once", lambda *args: 8)
    capture = Rerun()
    engine = make(nano_gqa, capture, max_model_len=512, num_blocks=140, max_num_seqs=4)
    long = [i % 32 for i in range(70)]
    outputs = run(engine, [PROMPTS[0], long, PROMPTS[2]], [greedy(4), greedy(3), greedy(2)], after_step=spoil)
    for output in outputs:
        assert_greedy(nano_gqa.oracle, output)
    # There may be 8 programs, and there is one KV head: 8 // 4 splits and 8 // 2 splits. For one sequence,
    # 8 // 1 splits would be too many for 512 tokens.
    assert set(splits) == {(4, 2), (2, 4), (1, 4)}
    assert capture.replays.total() == 3


def test_a_request_of_the_greatest_length(nano_gqa: Pair) -> None:
    """Its block table has as many columns as the buffers."""
    engine = make(nano_gqa, Rerun(), max_model_len=13)
    (output,) = run(engine, [PROMPTS[0]], greedy(5), after_step=spoil)
    assert_greedy(nano_gqa.oracle, output, 5)


@pytest.mark.parametrize(
    ("options", "captures"),
    [
        ({}, True),
        ({"enforce_eager": True}, False),
        ({"attention_backend": "reference"}, False),
        ({"kv_layout": "contiguous"}, False),
    ],
)
def test_on_a_gpu_decodes_are_captured(
    nano_gqa: Pair, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], captures: bool
) -> None:
    """By default, unless `enforce_eager` or another backend is set."""
    monkeypatch.setattr(decode_steps, "CudaGraphCapture", lambda device: Rerun())
    monkeypatch.setattr(type(nano_gqa.model.decoder), "device", torch.device("cuda"))
    config = EngineConfig(**EngineOptions(**options))  # pyright: ignore[reportArgumentType]
    capture = make_capture(config, nano_gqa.model.decoder)
    assert (capture is not None) == captures


@pytest.mark.skipif(DEVICE.type == "cuda", reason="there is a GPU")
def test_without_a_gpu_nothing_is_captured(nano_gqa: Pair) -> None:
    assert graphs_of(make(nano_gqa, Rerun(), parts=None)) is None


def test_a_readers_attention_is_not_captured(nano_gqa: Pair) -> None:
    from minipaged.attention.reference import reference_attention

    engine = make(nano_gqa, Rerun(), parts=Parts(capture=Rerun(), attention=reference_attention))
    assert graphs_of(engine) is None


def test_preemption_and_copies(nano_gqa: Pair) -> None:
    """Samples with penalties, in a pool that is too small for all, get the tokens of an eager engine."""
    params = SamplingParams(n=2, max_tokens=6, seed=1, ignore_eos=True, presence_penalty=0.5)
    capture = Rerun()

    def samples(**options: object) -> list[list[int]]:
        engine = make(nano_gqa, capture, num_blocks=8, max_model_len=16, **options)
        outputs = run(engine, [PROMPTS[4], PROMPTS[4][:3]], params)
        stats = engine.stats()
        assert min(stats.num_copied_blocks, stats.num_preemptions) > 0
        assert_all_free(engine)
        return [sample.token_ids for output in outputs for sample in output.outputs]

    captured = samples()
    assert capture.replays.total() > 0
    assert captured == samples(parts=None, attention_backend="reference")


def test_the_embedded_model(tiny: Pair) -> None:
    """Samples that copy on write, and then a prompt whose beginning is a prefix hit."""
    model = load_model("tiny", dtype=torch.float32, device=DEVICE)
    capture = Rerun()
    engine = make(Pair(model, tiny.oracle), capture, max_num_seqs=2)
    (output,) = run(engine, [PROMPTS[4]], greedy(3, n=2, temperature=1.0, top_k=1))
    assert engine.stats().num_copied_blocks == 1
    assert output.outputs[0].token_ids == output.outputs[1].token_ids
    assert_greedy(tiny.oracle, output, 3)
    (again,) = run(engine, [PROMPTS[4]], greedy(2))
    assert again.num_cached_tokens == 4
    assert_greedy(tiny.oracle, again, 2)
    assert capture.replays == {0: 2, 1: 2}, "the last token of the prompt is a decode like any other"
