"""Settings that the model's configuration rules out are refused before weights are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minipaged import LLM
from minipaged.config import EngineConfig, EngineOptions
from minipaged.engine import memory_plan
from minipaged.engine.machine import Memory
from minipaged.engine.memory_plan import MemoryPlan, check_before_loading, plan_memory
from minipaged.errors import ConfigError, ModelNotFoundError, WeightsError
from minipaged.loading import loader
from minipaged.loading.folder import read_config
from minipaged.loading.locations import TINY_FOLDER, Location
from tests.loading.gguf_files import write_model
from tests.oracle import make_config, make_hf_model, make_model

TINY = read_config(TINY_FOLDER)
CONTIGUOUS = EngineOptions(kv_layout="contiguous", enable_prefix_caching=False)

REFUSED: dict[str, tuple[EngineOptions, str]] = {
    "a pool for less than one request": ({"num_blocks": 3}, "The longest that fits is 2 × 16 = 32 tokens"),
    "memory for less than one request": ({"kv_cache_memory_bytes": 100_000}, "The longest that fits is"),
    "memory for nothing": ({"kv_cache_memory_bytes": 10, "max_model_len": "auto"}, "holds no tokens"),
    "longer than the model": ({"max_model_len": 513}, "above the 512 tokens that the model was trained for"),
    "longer than the model, with a pool": ({"max_model_len": 513, "num_blocks": 99}, "above the 512 tokens"),
    "longer than a step": (
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 9},
        "must fit into one",
    ),
    "no region": (CONTIGUOUS | {"num_blocks": 3}, "needs a region of 512 slots"),
    "no cache": (
        {"kv_layout": "none", "enable_prefix_caching": False, "max_model_len": 600},
        "above the 512",
    ),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_no_weight_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, options: EngineOptions, message: str
) -> None:
    if kind == "folder":
        path = make_model(tmp_path / "m")
        (path / "model.safetensors").write_bytes(b"no weights")
        with pytest.raises(WeightsError):
            LLM(str(path), device="cpu")
    else:
        path = write_model(tmp_path / "m.gguf", make_hf_model(make_config()))
        monkeypatch.setattr(loader, "Decoder", None)
    with pytest.raises(ConfigError, match=message):
        LLM(str(path), **(options | {"device": "cpu"}))


def test_nothing_is_fetched_but_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_model(tmp_path / "m")
    fetched: list[bool] = []

    def locate_or_fetch(name: str, *, weights: bool, progress: bool) -> Location:
        fetched.append(weights)
        if weights:
            raise ModelNotFoundError("a large download")
        return Location("folder", folder, "the hub's cache")

    monkeypatch.setattr(loader, "locate", lambda name, *, weights: None)
    monkeypatch.setattr(loader, "locate_or_fetch", locate_or_fetch)
    with pytest.raises(ConfigError, match="The longest that fits"):
        LLM("some/model", device="cpu", num_blocks=3)
    assert fetched == [False]
    with pytest.raises(ModelNotFoundError):
        LLM("some/model", device="cpu", num_blocks=90)
    assert fetched == [False, False, True]


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "num_blocks": st.integers(2, 200),
        "kv_cache_memory_bytes": st.integers(1, 5_000_000),
        "max_model_len": st.sampled_from((None, "auto", -1, 1, 64, 1024, 1025)),
        "max_num_seqs": st.integers(1, 3),
        "enable_chunked_prefill": st.booleans(),
        "max_num_batched_tokens": st.sampled_from((8, 500, 2048)),
        "block_size": st.sampled_from((1, 16, 100)),
        "layout": st.sampled_from(("paged", "first_fit", "buddy", "none")),
    },
)


def config_of(options: dict[str, object]) -> EngineConfig:
    layout = options.pop("layout", "paged")
    if layout == "none":
        options |= {"kv_layout": "none"}
    elif layout != "paged":
        options |= {"kv_layout": "contiguous", "region_allocator": layout}
    return EngineConfig("tiny", **options)  # pyright: ignore[reportArgumentType]


@given(options=OPTIONS, free=st.integers(0, 200_000_000))
def test_refused_is_what_any_memory_would_refuse(options: dict[str, object], free: int) -> None:
    """If the settings give the size of the pool, all limits are checked, with the same messages."""
    config = config_of(options)

    def plan() -> MemoryPlan | str:
        try:
            return plan_memory(config, TINY, torch.float32, torch.device("cpu"))
        except ConfigError as error:
            return str(error)

    try:
        check_before_loading(config, TINY, torch.float32)
        refused = None
    except ConfigError as error:
        refused = str(error)
    with pytest.MonkeyPatch.context() as patch:
        for memory in (free, 10**15):
            patch.setattr(memory_plan, "usable_memory", lambda memory=memory: Memory(memory, memory))
            planned = plan()
            if refused is not None:
                assert isinstance(planned, str)
        settled = {"num_blocks", "kv_cache_memory_bytes"} & options.keys() or config.kv_layout == "none"
        if settled:
            assert planned == refused or (refused is None and isinstance(planned, MemoryPlan))
