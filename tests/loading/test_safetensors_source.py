"""Weights from safetensors folders: single files, shards, and all kinds of errors."""

from __future__ import annotations

import json
import weakref
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from minipaged.errors import WeightsError
from minipaged.loading import safetensors_source
from minipaged.loading.folder import read_config
from minipaged.loading.loader import LoadedModel, load_model
from minipaged.loading.safetensors_source import SafetensorsSource, has_weights
from minipaged.model.decoder import Decoder
from tests.model.dense import packed_logits
from tests.oracle import FAMILIES, Family, Oracle, edit_json, make_model

CPU = torch.device("cpu")
TOKENS = [3, 141, 59, 26, 5, 35, 89, 79, 32, 38]
NORM = "model.norm.weight"
UP = "model.layers.1.mlp.up_proj.weight"


def load(folder: Path, dtype: torch.dtype = torch.float32) -> LoadedModel:
    return load_model(str(folder), dtype=dtype, device=CPU)


def rewrite(folder: Path, **changes: torch.Tensor | None) -> None:
    """Replace, add, or (with `None`) remove tensors. Names have `__` for `.`."""
    tensors = load_file(folder / "model.safetensors")
    for key, value in changes.items():
        name = key.replace("__", ".")
        tensors.pop(name, None) if value is None else tensors.__setitem__(name, value)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [False, True])
def test_logits_equal_transformers(tmp_path: Path, family: Family, tied: bool) -> None:
    folder = make_model(tmp_path / "m", family, tied=tied)
    ours = packed_logits(load(folder).decoder, [TOKENS])[0]
    assert (ours - Oracle.from_folder(folder).logits(TOKENS)).abs().max() < 1e-4


def test_shards(tmp_path: Path) -> None:
    whole = make_model(tmp_path / "whole", seed=7)
    shards = make_model(tmp_path / "shards", seed=7, max_shard_size="40KB")
    assert len(list(shards.glob("model-*.safetensors"))) > 3
    expected = load(whole).decoder.weight_views()
    for name, slot in load(shards).decoder.weight_views().items():
        assert torch.equal(slot, expected[name]), name


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("wanted", [torch.bfloat16, torch.float32])
def test_dtypes_are_converted(tmp_path: Path, stored: torch.dtype, wanted: torch.dtype) -> None:
    folder = make_model(tmp_path / "m")
    tensors = {name: t.to(stored) for name, t in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    slots = load(folder, wanted).decoder.weight_views()
    assert all(torch.equal(slots[name], t.to(wanted)) for name, t in tensors.items())


def test_one_tensor_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_model(tmp_path / "m", max_shard_size="40KB")
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    most = 0

    class Watched:
        def __init__(self, path: Path, framework: str) -> None:
            self.file = safe_open(path, framework=framework)

        def __enter__(self) -> Watched:
            self.file.__enter__()
            return self

        def __exit__(self, *_: object) -> None:
            self.file.__exit__(None, None, None)

        def keys(self) -> list[str]:
            return list(self.file.keys())

        def get_slice(self, name: str) -> object:
            return self.file.get_slice(name)

        def get_tensor(self, name: str) -> torch.Tensor:
            nonlocal most
            tensor = self.file.get_tensor(name)
            alive.add(tensor)
            most = max(most, len(alive))
            return tensor

    monkeypatch.setattr(safetensors_source, "safe_open", Watched)
    loaded = load(folder)
    assert most == 1
    assert len(alive) == 0
    # The filled tensors are views of the parameters, so the decoder computes with them.
    parameters = {p.untyped_storage().data_ptr() for p in loaded.decoder.parameters()}
    assert {s.untyped_storage().data_ptr() for s in loaded.decoder.weight_views().values()} == parameters


def test_missing_superfluous_and_misshapen_are_all_named(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    rewrite(
        folder,
        model__norm__weight=None,
        model__layers__1__mlp__up_proj__weight=torch.zeros(5, 64),
        model__layers__9__mlp__up_proj__weight=torch.zeros(96, 64),
    )
    with pytest.raises(WeightsError) as error:
        load(folder)
    message = str(error.value)
    assert f"missing: {NORM}" in message
    assert "not part of this model: model.layers.9.mlp.up_proj.weight" in message
    assert f"of the wrong shape: {UP} [5, 64], not [96, 64]" in message
    assert str(folder) in message


def test_nothing_is_read_before_all_names_and_shapes_fit(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    rewrite(folder, model__norm__weight=None)
    with pytest.raises(WeightsError):
        load(folder)
    decoder = Decoder(read_config(folder), torch.float32, CPU)
    for parameter in decoder.parameters():
        parameter.data.fill_(7.0)
    with pytest.raises(WeightsError):
        safetensors_fill(decoder, folder)
    assert all(bool((parameter == 7.0).all()) for parameter in decoder.parameters())


def safetensors_fill(decoder: Decoder, folder: Path) -> None:
    from minipaged.loading.tensor_source import fill_views

    fill_views(decoder.weight_views(), SafetensorsSource(folder), tied=False, progress=False)


def test_long_lists_are_cut(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m", num_layers=3)
    edit_json(folder / "config.json", num_hidden_layers=5)
    with pytest.raises(WeightsError, match=r"missing: model\.layers\.3.*and 10 more"):
        load(folder)


def test_what_old_checkpoints_hold_besides_is_passed_over(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m", tied=True)
    expected = packed_logits(load(folder).decoder, [TOKENS])[0]
    rewrite(
        folder,
        lm_head__weight=load(folder).decoder.weight_views()["model.embed_tokens.weight"].clone(),
        model__layers__0__self_attn__rotary_emb__inv_freq=torch.zeros(16),
    )
    assert torch.equal(packed_logits(load(folder).decoder, [TOKENS])[0], expected)


@pytest.mark.parametrize("shape", [(257, 64), (257, 63)])
def test_a_head_that_is_not_the_embedding_is_not_passed_over(tmp_path: Path, shape: tuple[int, int]) -> None:
    """transformers would compute with this head even if the configuration says that it is tied."""
    folder = make_model(tmp_path / "m", tied=True)
    rewrite(folder, lm_head__weight=torch.zeros(shape))
    with pytest.raises(WeightsError, match=r"tie_word_embeddings.*remove lm_head\.weight"):
        load(folder)


def test_an_untied_head_must_be_there(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m", tied=False)
    rewrite(folder, lm_head__weight=None)
    with pytest.raises(WeightsError, match=r"missing: lm_head\.weight"):
        load(folder)


def test_pickles_are_refused(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="holds neither"):
        load(folder)
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(WeightsError, match=r"only as pytorch_model.bin.*can run any code"):
        load(folder)


def test_integers_are_refused(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    rewrite(folder, model__norm__weight=torch.ones(64, dtype=torch.int8))
    with pytest.raises(WeightsError, match=r"model\.norm\.weight .* stored as I8\. Quantised"):
        load(folder)


def test_damaged_files(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsError, match="not a readable safetensors file"):
        load(folder)
    path.write_bytes(b"")
    with pytest.raises(WeightsError, match="not a readable safetensors file"):
        load(folder)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m", max_shard_size="40KB")
    shard = sorted(folder.glob("model-*.safetensors"))[1]
    assert has_weights(folder)
    shard.unlink()
    assert not has_weights(folder)
    with pytest.raises(WeightsError, match=shard.name):
        load(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_hidden_layers", 20_000),
        ("num_hidden_layers", 10**18),
        ("vocab_size", 10**12),
        ("intermediate_size", 10**15),
        ("hidden_size", 10**30),
    ],
)
def test_a_configuration_of_a_much_larger_model(tmp_path: Path, name: str, value: int) -> None:
    """It is refused at once, not after memory has run out or thousands of layers are built."""
    folder = make_model(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {name: value}))
    with pytest.raises(WeightsError, match="its configuration describes a model of"):
        load(folder)


BAD_INDICES = [
    "{",
    "[]",
    '{"weight_map": {"a": 3}}',
    '{"weight_map": {"a": "../b"}}',
    '{"a": ' + "[" * 200_000,
    json.dumps({"weight_map": {"a": "b" * 5000}}),
]


@pytest.mark.parametrize("index", BAD_INDICES, ids=lambda index: index[:30])
def test_bad_indices(tmp_path: Path, index: str) -> None:
    folder = make_model(tmp_path / "m", max_shard_size="40KB")
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(WeightsError, match="index"):
        load(folder)
    assert not has_weights(folder)


def test_a_tensor_that_only_the_index_knows_is_missing(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m", max_shard_size="40KB")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    shard = folder / index["weight_map"][NORM]
    save_file({name: t for name, t in load_file(shard).items() if name != NORM}, shard)
    with pytest.raises(WeightsError, match=f"missing: {NORM}"):
        load(folder)
