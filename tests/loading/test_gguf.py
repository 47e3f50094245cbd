"""GGUF files: the container, the configuration in it, and the weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from transformers import PreTrainedModel

from minipaged.errors import UnsupportedModelError, WeightsError
from minipaged.loading import gguf_source
from minipaged.loading.gguf_file import GgufFile
from minipaged.loading.loader import load_model
from minipaged.model.config import RopeConfig
from minipaged.model.rope import frequencies
from tests.loading.gguf_files import add_tensors, finish, model_writer, quantised, write_model
from tests.model.dense import packed_logits
from tests.oracle import FAMILIES, Family, Oracle, config_of, make_config, make_hf_model

CPU = torch.device("cpu")
TOKENS = [3, 141, 59, 26, 5, 35, 89, 79, 32, 38]
KINDS = [GGMLQuantizationType[name] for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_1")]


def small(family: Family = "llama", **shape: bool | int) -> PreTrainedModel:
    return make_hf_model(make_config(family, **shape))  # pyright: ignore[reportArgumentType]


def slots_of(path: Path) -> dict[str, torch.Tensor]:
    return load_model(str(path), dtype=torch.float32, device=CPU).decoder.weight_views()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [False, True])
def test_logits_equal_transformers(tmp_path: Path, family: Family, tied: bool) -> None:
    hf = small(family, tied=tied)
    loaded = load_model(str(write_model(tmp_path / "m.gguf", hf)), dtype=torch.float32, device=CPU)
    assert loaded.tokenizer is None
    ours = packed_logits(loaded.decoder, [TOKENS])[0]
    assert (ours - Oracle(hf).logits(TOKENS)).abs().max() < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_config(tmp_path: Path, family: Family) -> None:
    hf = small(family, tied=True)
    config = load_model(str(write_model(tmp_path / "m.gguf", hf)), dtype=torch.float32, device=CPU).config
    expected = config_of(hf.config)
    assert config.rms_norm_eps == pytest.approx(expected.rms_norm_eps)
    ours = {**vars(config), "rms_norm_eps": 0}
    # Mistral is llama to GGUF.
    renamed = {"architecture": "llama"} if family == "mistral" else {}
    assert ours == {**vars(expected), "rms_norm_eps": 0, **renamed}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_quantised_weights(tmp_path: Path, kind: GGMLQuantizationType) -> None:
    hf = small("llama", attention_bias=True)
    slots = slots_of(write_model(tmp_path / "m.gguf", hf, kind))
    for name, parameter in hf.named_parameters():
        assert torch.equal(slots[name], quantised(parameter.data, kind)), name


@pytest.mark.parametrize("rows", [1, 40, 64, 1000])
def test_pieces_make_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    hf = small("llama")
    monkeypatch.setattr(gguf_source, "_ROWS_AT_ONCE", rows)
    slots = slots_of(write_model(tmp_path / "m.gguf", hf))
    assert all(torch.equal(slots[name], parameter.data) for name, parameter in hf.named_parameters())


def test_container_equals_the_gguf_package(tmp_path: Path) -> None:
    writer = model_writer(tmp_path / "m.gguf", small())
    writer.add_array("some.strings", ["", "a", "é"])
    writer.add_array("some.numbers", [1, -2, 3])
    writer.add_bool("some.flag", True)
    writer.add_float64("some.double", 0.1)
    writer.add_int64("some.long", -(2**40))
    add_tensors(writer, small(), GGMLQuantizationType.Q8_0)
    finish(writer)
    ours, theirs = GgufFile(tmp_path / "m.gguf"), GGUFReader(tmp_path / "m.gguf")
    for key, value in ours.metadata.items():
        assert value == theirs.fields[key].contents(), key
    assert len(ours.metadata) == len(theirs.fields) - 3  # their reader also counts the header's numbers
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))
        assert mine.kind == tensor.tensor_type
        assert ours.data(mine).tobytes() == tensor.data.tobytes()


def test_llama3_scaling_is_stored_as_divisors(tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    hf = make_hf_model(make_config("llama", rope=rope))
    scaled = frequencies(config_of(hf.config).rope, 32)
    divisors = (frequencies(RopeConfig(500_000.0), 32) / scaled).numpy().astype(np.float32)
    writer = model_writer(tmp_path / "m.gguf", hf)
    add_tensors(writer, hf)
    writer.add_tensor("rope_freqs.weight", divisors)
    finish(writer)
    loaded = load_model(str(tmp_path / "m.gguf"), dtype=torch.float32, device=CPU)
    tokens = TOKENS * 20
    difference = packed_logits(loaded.decoder, [tokens])[0] - Oracle(hf).logits(tokens)
    assert difference.abs().max() < 1e-4


def test_linear_scaling(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", small(), rope__scaling__type="linear", rope__scaling__factor=4.0)
    config = load_model(str(path), dtype=torch.float32, device=CPU, load_format="dummy").config
    assert config.rope == RopeConfig(10_000.0, "linear", 4.0)


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"expert_count": 8}, "mixture of experts"),
        ({"attention__sliding_window": 128}, "sliding-window attention"),
        ({"rope__scaling__type": "yarn"}, "RoPE scaling 'yarn'"),
        ({"rope__dimension_count": 16}, "partial rotary embedding"),
        ({"attention__head_count": 0}, "num_heads=0"),
        ({"attention__head_count": 4.5}, "a whole number is needed"),
        ({"attention__head_count": float("nan")}, "a whole number is needed"),
        ({"attention__head_count": float("inf")}, "a whole number is needed"),
        ({"attention__layer_norm_rms_epsilon": float("nan")}, "rms_norm_eps=nan"),
        ({"attention__layer_norm_rms_epsilon": -1.0}, "rms_norm_eps=-1.0"),
        ({"rope__freq_base": 0.0}, "RoPE's theta=0.0"),
        ({"rope__freq_base": float("inf")}, "RoPE's theta=inf"),
        ({"rope__scaling__type": "linear"}, "no llama.rope.scaling.factor"),
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 0.0}, "RoPE's factor=0.0"),
    ],
)
def test_unsupported_features(tmp_path: Path, overrides: dict[str, int | str], named: str) -> None:
    path = write_model(tmp_path / "m.gguf", small(), **overrides)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnsupportedModelError, match=named):
        slots_of(path)


@pytest.mark.parametrize("key", ["rope__scaling__factor", "rope__scale_linear"])
def test_a_factor_without_a_type_is_linear(tmp_path: Path, key: str) -> None:
    """llama.cpp reads such a file in the same way. Its older converters wrote no type."""
    path = write_model(tmp_path / "m.gguf", small(), **{key: 4.0})  # pyright: ignore[reportArgumentType]
    config = load_model(str(path), dtype=torch.float32, device=CPU, load_format="dummy").config
    assert config.rope == RopeConfig(10_000.0, "linear", 4.0)


@pytest.mark.parametrize(
    ("divisors", "named"),
    [
        (np.ones(16, np.float16), "of F16"),
        (np.ones((2, 16), np.float32), r"\[2, 16\]"),
        (np.ones(7, np.float32), "7 RoPE divisors"),
        (np.array([0] + [1] * 15, np.float32), "RoPE's divisor 0=0.0"),
        (np.array([1] * 15 + [np.nan], np.float32), "RoPE's divisor 15=nan"),
    ],
)
def test_divisors_that_cannot_be_used(tmp_path: Path, divisors: np.ndarray, named: str) -> None:
    hf = small()
    writer = model_writer(tmp_path / "m.gguf", hf)
    add_tensors(writer, hf)
    writer.add_tensor("rope_freqs.weight", divisors)
    finish(writer)
    with pytest.raises(UnsupportedModelError, match=named):
        slots_of(tmp_path / "m.gguf")


def test_other_architectures_and_parts(tmp_path: Path) -> None:
    finish(GGUFWriter(tmp_path / "m.gguf", "gemma"))
    with pytest.raises(UnsupportedModelError, match="architecture 'gemma'"):
        slots_of(tmp_path / "m.gguf")
    writer = model_writer(tmp_path / "p.gguf", small())
    writer.add_uint16("split.count", 3)
    add_tensors(writer, small())
    finish(writer)
    with pytest.raises(UnsupportedModelError, match="one of 3 parts"):
        slots_of(tmp_path / "p.gguf")


def test_tensors_that_do_not_fit(tmp_path: Path) -> None:
    hf = small(tied=True)
    writer = model_writer(tmp_path / "m.gguf", hf, block_count=3)
    writer.add_tensor("blk.0.ffn_gate.bias", np.zeros(96, dtype=np.float32))
    add_tensors(writer, hf)
    finish(writer)
    with pytest.raises(WeightsError) as error:
        slots_of(tmp_path / "m.gguf")
    assert "missing: model.layers.2.input_layernorm.weight" in str(error.value)
    assert "not part of this model: model.layers.0.mlp.gate_proj.bias" in str(error.value)


def test_metadata_that_is_missing_is_named(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_embedding_length(64)
    finish(writer)
    with pytest.raises(UnsupportedModelError, match=r"has no llama\.\w+"):
        slots_of(tmp_path / "m.gguf")


def test_no_prefix_of_a_file_passes(tmp_path: Path) -> None:
    whole = write_model(tmp_path / "m.gguf", small()).read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in [0, 3, 4, 8, 20, 100, 1000, 3000, len(whole) // 2, len(whole) - 200]:
        cut.write_bytes(whole[:length])
        with pytest.raises(WeightsError, match=r"cut\.gguf"):
            GgufFile(cut)


def test_damage_is_an_error_of_ours(tmp_path: Path) -> None:
    whole = bytearray(write_model(tmp_path / "m.gguf", small()).read_bytes())
    damaged = tmp_path / "damaged.gguf"
    outcomes = set()
    for position in range(4, 1200, 7):
        changed = whole.copy()
        changed[position] ^= 0xFF
        damaged.write_bytes(changed)
        try:
            load_model(str(damaged), dtype=torch.float32, device=CPU)
            outcomes.add("loaded")
        except (WeightsError, UnsupportedModelError):
            outcomes.add("refused")
    assert outcomes == {"loaded", "refused"}


def test_versions_and_other_files(tmp_path: Path) -> None:
    whole = bytearray(write_model(tmp_path / "m.gguf", small()).read_bytes())
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(WeightsError, match="does not begin with 'GGUF'"):
        GgufFile(other)
    whole[4] = 1
    other.write_bytes(whole)
    with pytest.raises(WeightsError, match="version 1"):
        GgufFile(other)
