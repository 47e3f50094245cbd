"""A step reads all its results from the device at once. Each read waits for all work that is queued.

Without a GPU nothing waits, but each read is a call, and these tests count the calls. The kernels are
replaced, since Triton's interpreter reads all the time. All code around them runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Unpack, cast

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

pytest.importorskip("triton")

from minipaged import BeamSearchParams, LLMEngine, SamplingParams
from minipaged.loading.loader import LoadedModel
from minipaged.options import EngineOptions
from minipaged.parts import Parts
from minipaged.runner.capture import rerun
from minipaged.sampling import draw
from minipaged.triton_kernels.setup import prepare_triton
from tests.engine.driving import greedy, make_engine
from tests.model_pairs import Pair

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
READS = {"tolist", "item", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__", "__iter__"}
READS |= {"nonzero", "masked_select", "unique", "equal", "allclose", "__contains__", "is_nonzero"}
PROMPTS = [[3, 1, 4, 1, 5], [2, 7], [1]]


class ReadCounter(TorchFunctionMode):
    """Lists the calls that make the host wait for the device.

    The result of a read is on the host, so reading it again is not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        name = func.__name__
        is_mask = name == "__getitem__" and isinstance(args[1], Tensor) and args[1].dtype == torch.bool
        if (name in READS or is_mask) and not getattr(args[0], "on_host", False):
            self.reads.append(name)
        if name == "cpu":
            cast(Tensor, result).on_host = True  # pyright: ignore[reportAttributeAccessIssue]
        return result


class NoKernel:
    """Replaces a kernel. It writes zeros to all tensors that the kernel might write."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: object, **options: object) -> None:
            for argument in args:
                if isinstance(argument, Tensor) and argument.is_floating_point():
                    argument.zero_()

        return launch

    def warmup(self, *args: object, **options: object) -> None:
        """Nothing is compiled, as under the interpreter."""


@pytest.fixture
def without_kernels(nano_gqa: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_triton(DEVICE)
    from minipaged.triton_kernels import cache as triton_cache
    from minipaged.triton_kernels import decode as triton_decode
    from minipaged.triton_kernels import decode_split as triton_decode_split
    from minipaged.triton_kernels import prefill as triton_prefill

    kernels: dict[ModuleType, tuple[str, ...]] = {
        triton_cache: ("write_kernel", "copy_kernel"),
        triton_decode: ("decode_kernel",),
        triton_decode_split: ("decode_part_kernel", "merge_kernel"),
        triton_prefill: ("prefill_kernel",),
    }
    for module, names in kernels.items():
        for name in names:
            monkeypatch.setattr(module, name, NoKernel())
    # On a CPU the sampler reads how many tokens the filters have kept; on other devices it does not.
    monkeypatch.setattr(draw, "_survivors", lambda logits: None)


def triton_engine(model: LoadedModel, **options: Unpack[EngineOptions]) -> LLMEngine:
    defaults = EngineOptions(device="auto", attention_backend="triton")
    return make_engine(model, **(defaults | options))


def reads_of_each_step(engine: LLMEngine) -> list[list[str]]:
    reads: list[list[str]] = []
    while engine.has_unfinished_requests():
        with ReadCounter() as counter:
            engine.step()
        reads.append(counter.reads)
    return reads


SAMPLING = {
    "greedy": greedy(3),
    "drawn": SamplingParams(max_tokens=3, temperature=0.7, top_k=5, top_p=0.9, min_p=0.01, ignore_eos=True),
    "penalised": greedy(3, presence_penalty=1.0, repetition_penalty=1.2),
    "banned": SamplingParams(max_tokens=3, min_tokens=2, stop_token_ids=[4]),
    "samples that copy on write": SamplingParams(n=2, max_tokens=3, ignore_eos=True),
    "with log-probabilities": greedy(3, logprobs=2),
    "beams": BeamSearchParams(beam_width=2, max_tokens=3, ignore_eos=True),
}


@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize("parts", [None, Parts(capture=rerun)], ids=["eager", "captured"])
@pytest.mark.parametrize("params", SAMPLING.values(), ids=SAMPLING.keys())
def test_one_read_for_each_step(
    nano_gqa: Pair, params: SamplingParams | BeamSearchParams, parts: Parts | None
) -> None:
    engine = triton_engine(
        nano_gqa.model,
        block_size=4,
        num_blocks=40,
        max_model_len=32,
        max_num_seqs=6,
        parts=parts,
    )
    for number, prompt in enumerate(PROMPTS):
        engine.add_request(str(number), prompt, params)
    assert reads_of_each_step(engine) == [["cpu"]] * 3


@pytest.mark.usefixtures("without_kernels")
def test_one_read_for_a_step_of_all_kinds(nano_gqa: Pair) -> None:
    engine = triton_engine(
        nano_gqa.model,
        block_size=4,
        num_blocks=80,
        max_model_len=32,
    )
    of_all_kinds = {**SAMPLING, "prompt log-probabilities": greedy(3, prompt_logprobs=2)}
    for name, params in of_all_kinds.items():
        engine.add_request(name, PROMPTS[0], params)
    assert reads_of_each_step(engine) == [["cpu"]] * 3


@pytest.mark.usefixtures("without_kernels")
def test_no_read_in_the_middle_of_a_prompt(nano_gqa: Pair) -> None:
    engine = triton_engine(
        nano_gqa.model,
        num_blocks=4,
        max_model_len=16,
        max_num_batched_tokens=2,
    )
    engine.add_request("long", PROMPTS[0], greedy(2))
    assert reads_of_each_step(engine) == [[], [], ["cpu"], ["cpu"]]


def test_the_counter_finds_reads() -> None:
    numbers = torch.arange(3)
    with ReadCounter() as counter:
        assert numbers[0] == 0
        numbers[numbers > 1]
        numbers.tolist()
        int(numbers[2])
        on_host = numbers.cpu()
        on_host.numpy()
    assert counter.reads == ["__bool__", "__getitem__", "tolist", "__int__", "cpu"]
