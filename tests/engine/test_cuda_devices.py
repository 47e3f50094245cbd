"""Engines on CUDA devices: which one, in which dtype, and what is launched there. The devices are made up.

Kernels are replaced by a note of each launch. All code around them runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from minipaged import BeamSearchParams, EngineConfig, LLMEngine, SamplingParams
from minipaged.engine.device import check_exactness, check_given_model, resolve_device, resolve_dtype
from minipaged.engine.machine import gpu_memory
from minipaged.errors import ConfigError
from minipaged.loading.loader import load_model
from minipaged.options import EngineOptions
from minipaged.triton_kernels.setup import prepare_triton
from tests.engine.driving import drain, greedy, make_engine
from tests.fake_cuda import GIB, FakeCuda, fake_cuda
from tests.oracle import Shape, make_model

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real device")

KINDS: list[SamplingParams | BeamSearchParams] = [
    greedy(3, prompt_logprobs=1),
    SamplingParams(n=3, max_tokens=3, seed=1, ignore_eos=True),
    BeamSearchParams(beam_width=3, max_tokens=4, ignore_eos=True),
]
CPU = torch.device("cpu")
GPU = torch.device("cuda", 1)


class Launches:
    """Stands for all kernels. It notes each launch, and writes zeros where a kernel might write.

    Attributes:
        noted: for each launch, the device that was current, and what Triton compiles a kernel for: its name,
            its constants, and of its numbers whether they are 1 or divisible by 16.
    """

    def __init__(self, machine: FakeCuda) -> None:
        self.noted: list[tuple[int, tuple[object, ...]]] = []
        self._machine = machine

    def kernel(self, original: object, name: str) -> Launches.Kernel:
        # An interpreted kernel keeps the options of its decorator, and a compiled one what it made of them.
        options = getattr(original, "kwargs", None) or vars(original)
        return Launches.Kernel(name, original.arg_names, options["do_not_specialize"], self)  # pyright: ignore

    class Kernel:
        def __init__(
            self, name: str, arguments: list[str], any_number: list[str] | None, launches: Launches
        ) -> None:
            self._name = name
            self._arguments = arguments
            self._any_number = any_number or []
            self._launches = launches

        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            return self._launch

        def warmup(self, *args: object, **constants: object) -> None:
            """Nothing is compiled, as under the interpreter."""

        def _launch(self, *args: object, **constants: object) -> None:
            numbers = [
                None if name in self._any_number else _specialised(argument)
                for name, argument in zip(self._arguments, args, strict=False)
            ]
            compiled_for = (self._name, *numbers, *sorted(constants.items(), key=str))
            self._launches.noted.append((self._launches._machine.current, compiled_for))
            for argument in args:
                if isinstance(argument, Tensor) and argument.is_floating_point():
                    argument.zero_()


def _specialised(argument: object) -> object:
    if isinstance(argument, Tensor):
        return str(argument.dtype)
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0
    return type(argument)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    prepare_triton(CPU)
    with fake_cuda(monkeypatch) as (machine, _):
        yield machine


@pytest.fixture
def launches(machine: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Launches:
    from minipaged.triton_kernels import cache, decode, decode_split, prefill

    noted = Launches(machine)
    monkeypatch.setattr("minipaged.attention.backend.prepare_triton", lambda device: None)
    for module, names in {
        cache: ("write_kernel", "copy_kernel"),
        decode: ("decode_kernel",),
        decode_split: ("decode_part_kernel", "merge_kernel"),
        prefill: ("prefill_kernel",),
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, noted.kernel(getattr(module, name), name))
    return noted


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "small"
    sizes = Shape(num_layers=1, hidden_size=32, num_heads=4, num_kv_heads=2, head_dim=16)
    return str(make_model(path, **(sizes | Shape(max_position_embeddings=1024))))


def engine_on(device: torch.device, folder: str, **changes: object) -> LLMEngine:
    options = {
        "device": str(device),
        "block_size": 4,
        "num_blocks": 300,
        "max_model_len": 1024,
        "max_num_seqs": 6,
    }
    model = load_model(folder, dtype=torch.float32, device=device)
    return make_engine(model, **EngineOptions(**(options | changes)))  # pyright: ignore[reportArgumentType]


def serve_all_kinds(engine: LLMEngine) -> None:
    """Prompts and decodes, alone and together, short and long; copies on write; swaps."""
    for length in (1, 7, 600):
        for number, params in enumerate(KINDS):
            engine.add_request(f"{length}-{number}", [(3 * i + length) % 30 for i in range(length)], params)
        engine.step()
    drain(engine)


@pytest.mark.parametrize("enforce_eager", [False, True])
def test_two_engines_launch_each_on_its_own_device(
    machine: FakeCuda, launches: Launches, folder: str, enforce_eager: bool
) -> None:
    for device in (GPU, torch.device("cuda", 0), GPU):
        launches.noted.clear()
        engine = engine_on(device, folder, enforce_eager=enforce_eager)
        serve_all_kinds(engine)
        assert {"write_kernel", "copy_kernel", "decode_kernel", "decode_part_kernel", "prefill_kernel"} <= {
            str(compiled_for[0]) for _, compiled_for in launches.noted
        }
        assert {current for current, _ in launches.noted} == {device.index}
        assert machine.current == 0
    assert len(machine.captures) == (0 if enforce_eager else 3 * 4)  # buckets 1, 2, 4, 6


@pytest.mark.parametrize("enforce_eager", [False, True])
def test_no_kernel_is_compiled_while_requests_wait(
    launches: Launches, folder: str, enforce_eager: bool
) -> None:
    engine = engine_on(GPU, folder, enforce_eager=enforce_eager)
    compiled = {compiled_for for _, compiled_for in launches.noted}
    launches.noted.clear()
    serve_all_kinds(engine)
    assert launches.noted
    assert {compiled_for for _, compiled_for in launches.noted} - compiled == set()


def test_a_kernel_that_does_not_fit_is_refused_when_the_engine_is_made(
    launches: Launches, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triton import OutOfResources

    from minipaged.triton_kernels import attention

    def too_large(*arguments: object, **options: object) -> None:
        raise OutOfResources(98_304, 65_536, "shared memory")

    monkeypatch.setattr(attention, "paged_prefill", too_large)
    with pytest.raises(ConfigError, match="takes 98,304 of shared memory, and there are 65,536"):
        engine_on(GPU, folder)


class TestWhichDevice:
    def test_auto_takes_the_current_gpu(self, machine: FakeCuda) -> None:
        machine.current = 1
        assert resolve_device("auto") == resolve_device("cuda") == GPU
        assert resolve_device("cuda:0") == torch.device("cuda", 0)

    def test_a_gpu_that_is_not_there(self, machine: FakeCuda) -> None:
        with pytest.raises(
            ConfigError, match=r"'cuda:2' is not on this machine, which has 'cuda:0', 'cuda:1'"
        ):
            resolve_device("cuda:2")

    def test_a_model_on_another_gpu(self, machine: FakeCuda, folder: str) -> None:
        model = load_model(folder, dtype=torch.float32, device=GPU)
        for fitting in ("auto", "cuda", "cuda:1"):
            check_given_model(EngineConfig(device=fitting), model)
        with pytest.raises(ConfigError, match="the given model is on cuda:1"):
            check_given_model(EngineConfig(device="cuda:0"), model)

    def test_auto_on_a_mac_takes_the_cpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
        assert resolve_device("auto") == CPU
        assert resolve_device("mps") == torch.device("mps", 0)


class TestWhichDtype:
    def test_auto(self, machine: FakeCuda) -> None:
        assert resolve_dtype("auto", GPU) == torch.bfloat16
        assert resolve_dtype("auto", CPU) == resolve_dtype("auto", torch.device("mps", 0)) == torch.float32
        machine.capability = (7, 5)  # a T4
        assert resolve_dtype("auto", GPU) == torch.float16
        assert resolve_dtype("float32", GPU) == torch.float32

    def test_bfloat16_on_a_gpu_without_it(self, machine: FakeCuda) -> None:
        assert resolve_dtype("bfloat16", GPU) == torch.bfloat16
        machine.capability = (7, 5)
        with pytest.raises(ConfigError, match=r"Some GPU has 7\.5: use 'auto', which takes float16 there"):
            resolve_dtype("bfloat16", GPU)


class TestMemory:
    def test_what_pytorch_holds_is_free_for_the_next_engine(self, machine: FakeCuda, folder: str) -> None:
        """An engine was made, and deleted: its memory is PyTorch's, and the driver calls it used."""
        machine.free, machine.held = 1000, 4 * GIB
        engine_on(GPU, folder, attention_backend="reference")
        assert machine.held == 0
        assert gpu_memory(GPU).free == 4 * GIB + 1000

    def test_what_does_not_fit_even_so(self, machine: FakeCuda, folder: str) -> None:
        machine.free, machine.held = 1000, 1000
        with pytest.raises(ConfigError, match="but 2,000 are free"):
            engine_on(GPU, folder, attention_backend="reference")


class TestModesOfPyTorch:
    @pytest.fixture(autouse=True)
    def put_back(self) -> Iterator[None]:
        yield
        torch.set_float32_matmul_precision("highest")
        torch.use_deterministic_algorithms(False)

    def test_rounded_products(self, machine: FakeCuda, folder: str) -> None:
        torch.set_float32_matmul_precision("high")
        with pytest.raises(ConfigError, match=r"to tf32.*set_float32_matmul_precision\('highest'\)"):
            engine_on(GPU, folder)
        check_exactness(GPU, torch.bfloat16)
        check_exactness(CPU, torch.float32)
        torch.set_float32_matmul_precision("medium")
        for device in (CPU, GPU):
            with pytest.raises(ConfigError, match="round float32 products"):
                check_exactness(device, torch.float32)

    def test_the_older_name_of_tf32(self) -> None:
        torch.backends.cuda.matmul.allow_tf32 = True
        with pytest.raises(ConfigError, match="to tf32"):
            check_exactness(GPU, torch.float32)

    def test_deterministic_algorithms(self, machine: FakeCuda, folder: str) -> None:
        torch.use_deterministic_algorithms(True, warn_only=True)
        check_exactness(GPU, torch.float32)
        torch.use_deterministic_algorithms(True)
        with pytest.raises(ConfigError, match="add warn_only=True"):
            engine_on(GPU, folder)

    def test_on_a_cpu_they_change_nothing(self, folder: str) -> None:
        def outputs() -> list[list[int]]:
            engine = engine_on(CPU, folder, attention_backend="reference", num_blocks=60, max_model_len=64)
            for number, params in enumerate(KINDS):
                engine.add_request(str(number), [1, 2, 3, 4, 5], params)
            finished = drain(engine)
            return [sample.token_ids for number in range(3) for sample in finished[str(number)].outputs]

        expected = outputs()
        torch.use_deterministic_algorithms(True)
        assert outputs() == expected
