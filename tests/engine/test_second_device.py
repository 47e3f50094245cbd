"""An engine on a device that is not the CPU: each step's tensors are on it, until the results are read.

The device is made up (`tests/fake_device.py`). It refuses what mixes tensors of two devices, and copies that
may read memory before it is filled, or after it was freed. The outputs are those of an engine on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from minipaged import BeamSearchParams, LLMEngine, RequestOutput, SamplingParams
from minipaged.loading.loader import load_model
from minipaged.options import EngineOptions
from tests.engine.driving import greedy, make_engine
from tests.fake_cuda import fake_cuda
from tests.fake_device import FakeDevice, WrongDeviceError
from tests.oracle import make_model

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real device")

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5]
DRAWN = SamplingParams(
    max_tokens=4, temperature=0.7, top_k=50, top_p=0.9, min_p=0.01, seed=5, logprobs=2, ignore_eos=True
)

REQUESTS: dict[str, SamplingParams | BeamSearchParams] = {
    "greedy": greedy(4),
    "drawn": DRAWN,
    "penalised": greedy(4, presence_penalty=1.0, frequency_penalty=0.5, repetition_penalty=1.2),
    "banned": SamplingParams(max_tokens=4, temperature=0, min_tokens=3, stop_token_ids=[4]),
    "samples that copy on write": SamplingParams(n=3, max_tokens=4, seed=2, ignore_eos=True),
    "log-probabilities": greedy(4, logprobs=3),
    "prompt log-probabilities": greedy(2, prompt_logprobs=2),
    "beams": BeamSearchParams(beam_width=3, max_tokens=4, ignore_eos=True),
}

LAYOUTS: dict[str, EngineOptions] = {
    "paged": {},
    "in chunks": {"max_num_batched_tokens": 5, "max_num_seqs": 4},
    "contiguous": {"kv_layout": "contiguous", "enable_prefix_caching": False},
    "no cache": {"kv_layout": "none", "enable_prefix_caching": False, "num_blocks": None},
}


@pytest.fixture(params=["mps", "cuda"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    if request.param == "cuda":
        with fake_cuda(monkeypatch) as (_, mode):
            yield mode
    else:
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
        with FakeDevice(torch.device("mps", 0)) as mode:
            yield mode


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "small"
    return str(make_model(path, hidden_size=32, num_heads=4, num_kv_heads=2, head_dim=8, vocab_size=48))


def engine_on(device: torch.device, folder: str, options: EngineOptions) -> LLMEngine:
    defaults = EngineOptions(
        device=str(device),
        attention_backend="reference",
        block_size=4,
        num_blocks=60,
        max_model_len=40,
    )
    return make_engine(load_model(folder, dtype=torch.float32, device=device), **(defaults | options))


def serve(engine: LLMEngine, requests: dict[str, SamplingParams | BeamSearchParams]) -> list[RequestOutput]:
    for name, params in requests.items():
        engine.add_request(name, PROMPT, params)
    finished: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests():
        finished |= {output.request_id: output for output in engine.step() if output.finished}
        engine.check_invariants()
    return [finished[name] for name in requests]


def numbers(output: RequestOutput) -> list[object]:
    """What an output says, without its times."""
    return [
        [(each.token_ids, each.finish_reason, each.stop_reason, each.logprobs) for each in output.outputs],
        output.prompt_logprobs,
    ]


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_every_kind_of_request(device: FakeDevice, folder: str, options: EngineOptions) -> None:
    found = serve(engine_on(device.device, folder, options), REQUESTS)
    expected = serve(engine_on(torch.device("cpu"), folder, options), REQUESTS)
    assert [numbers(output) for output in found] == [numbers(output) for output in expected]


def test_a_step_reads_once(device: FakeDevice, folder: str) -> None:
    """On mps the logits are read instead of the results: one read more for prompts' log-probabilities."""
    engine = engine_on(device.device, folder, {})
    for name, params in REQUESTS.items():
        engine.add_request(name, PROMPT, params)
    reads: list[int] = []
    while engine.has_unfinished_requests():
        device.reads.clear()
        engine.step()
        reads.append(len(device.reads))
    assert reads == [2 if device.device.type == "mps" else 1, 1, 1, 1]


def test_blocks_are_swapped(device: FakeDevice, folder: str) -> None:
    """Out of the device and back, between steps of other requests."""
    options = EngineOptions(preemption_mode="swap", num_blocks=12, enable_prefix_caching=False)
    requests: dict[str, SamplingParams | BeamSearchParams] = {
        "a": greedy(20),
        "b": SamplingParams(n=2, max_tokens=12, seed=3, ignore_eos=True),
        "c": BeamSearchParams(beam_width=2, max_tokens=9, ignore_eos=True),
    }
    engine = engine_on(device.device, folder, options)
    found = serve(engine, requests)
    assert engine.stats().num_swapped_blocks > 0
    expected = serve(engine_on(torch.device("cpu"), folder, options), requests)
    assert [numbers(output) for output in found] == [numbers(output) for output in expected]


def test_weights_of_another_dtype_get_there(device: FakeDevice, folder: str) -> None:
    model = load_model(folder, dtype=torch.bfloat16, device=device.device)
    assert model.decoder.device == device.device


class TestTheDeviceItself:
    def test_two_devices_do_not_mix(self, device: FakeDevice) -> None:
        there = torch.zeros(3, device=device.device)
        with pytest.raises(WrongDeviceError, match="two devices"):
            torch.add(there, torch.ones(3))
        with pytest.raises(WrongDeviceError, match="two devices"):
            torch.cat([torch.ones(3), there])
        with pytest.raises(WrongDeviceError, match="two devices"):
            there.index_select(0, torch.tensor([1]))
        assert (there + 1).cpu().tolist() == [1, 1, 1]

    def test_memory_that_may_be_gone(self, device: FakeDevice) -> None:
        with pytest.raises(WrongDeviceError, match="not pinned"):
            torch.ones(3).to(device.device, non_blocking=True)
        with pytest.raises(WrongDeviceError, match="not pinned"):
            torch.zeros(3, device=device.device).to("cpu", non_blocking=True)
        pinned = torch.ones(3, pin_memory=True)
        assert pinned[1:].to(device.device, non_blocking=True).cpu().tolist() == [1, 1]

    def test_reads_are_noted(self, device: FakeDevice) -> None:
        there = torch.arange(3, device=device.device)
        there.cpu()
        assert there[1].item() == 1
        assert device.reads == [(3,), ()]

    def test_mps_has_no_float64(self, device: FakeDevice) -> None:
        there = torch.zeros(3, device=device.device)
        if device.device.type == "mps":
            with pytest.raises(WrongDeviceError, match="float64"):
                there.double()
        else:
            assert there.double().dtype == torch.float64
