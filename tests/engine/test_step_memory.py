"""On a GPU the cache gets `gpu_memory_utilization` minus the needs of weights, steps and captured steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from minipaged import EngineConfig
from minipaged.engine.memory_plan import plan_memory
from minipaged.engine.step_memory import BYTES_PER_GRAPH, run_step, step_bytes
from minipaged.kv.size import KVShape
from minipaged.loading.loader import LoadedModel, load_model

GPU = torch.device("cuda")
MIB = 2**20


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load_model("tiny", dtype=torch.float32, device=torch.device("cpu"))


def planned_blocks(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch, step_bytes: Callable[[], int], config: EngineConfig
) -> int:
    """The number of blocks on a made-up GPU of 1,000 MiB. 100 MiB are in use, and 120 after a step."""
    used = [100 * MIB]

    def measured() -> int:
        used[0] += 20 * MIB
        return step_bytes()

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000 * MIB - used[0], 1000 * MIB))
    return plan_memory(config, tiny.config, torch.float32, GPU, step_bytes=measured).num_blocks


def test_the_cache_gets_what_is_left(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    config = EngineConfig(gpu_memory_utilization=0.5, max_num_seqs=10_000)
    shape = tiny.config
    block = KVShape(shape.num_layers, shape.num_kv_heads, shape.head_dim, 4).bytes_per_token * 16
    num_blocks = planned_blocks(tiny, monkeypatch, lambda: 80 * MIB, config)
    assert num_blocks == (500 - 120 - 80) * MIB // block
    assert num_blocks < 10_000 * 1024 // 16, "memory is the limit here, not what is useful"


# A block of 16 tokens: keys and values of 6 layers, 2 KV heads of 32 numbers in float32.
BLOCK_BYTES = 2 * 6 * 16 * 2 * 32 * 4


@pytest.mark.parametrize("options", [{"num_blocks": 70}, {"kv_cache_memory_bytes": 70 * BLOCK_BYTES}])
def test_what_is_said_is_not_measured(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch, options: dict[str, int]
) -> None:
    def never() -> int:
        raise AssertionError("nothing to measure")

    config = EngineConfig(max_model_len=64, **options)  # pyright: ignore[reportArgumentType]
    assert planned_blocks(tiny, monkeypatch, never, config) == 70


@pytest.mark.parametrize(
    ("with_graphs", "expected_runs", "expected_bytes"),
    [
        (False, [(64, 20)], 1000),
        (True, [(64, 20), (20, 0)], 2000 + 6 * BYTES_PER_GRAPH),  # buckets 1, 2, 4, 8, 16, 20
    ],
)
def test_what_is_run(
    tiny: LoadedModel,
    monkeypatch: pytest.MonkeyPatch,
    with_graphs: bool,
    expected_runs: list[tuple[int, int]],
    expected_bytes: int,
) -> None:
    runs: list[tuple[int, int]] = []
    decoder = tiny.decoder
    monkeypatch.setattr("minipaged.engine.step_memory.run_step", lambda model, *size: runs.append(size))

    def peak_bytes(run: Callable[[], None]) -> int:
        run()
        return 1000

    taken = step_bytes(
        decoder,
        max_num_batched_tokens=64,
        max_num_seqs=20,
        with_graphs=with_graphs,
        peak_bytes=peak_bytes,
    )
    assert runs == expected_runs
    assert taken == expected_bytes


def test_a_step_runs_the_whole_model(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes all tokens in all layers, and the logits of the sampled rows."""
    shapes: list[tuple[int, ...]] = []
    decoder = tiny.decoder
    logits = decoder.logits

    def recorded(hidden: Tensor) -> Tensor:
        shapes.append(tuple(hidden.shape))
        return logits(hidden)

    monkeypatch.setattr(decoder, "logits", recorded)
    run_step(decoder, 12, 5)
    run_step(decoder, 12, 0)
    assert shapes == [(5, tiny.config.hidden_size)]
