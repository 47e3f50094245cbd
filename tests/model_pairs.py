"""Models that all engine tests share: small random models, `tiny`, and SmolLM2."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from minipaged.loading.loader import LoadedModel, load_model
from tests.oracle import Family, Oracle, Shape, make_model


@dataclass(frozen=True)
class Pair:
    """A model that our loader loaded, and the oracle for it."""

    model: LoadedModel
    oracle: Oracle


# All families; GQA, MHA and MQA; head dimensions 32, 64, 80 and 128; tied and untied embeddings. One of the
# models runs in PyTorch at every stage: a hidden size of 84 does not fill panels.
RANDOM_MODELS: dict[str, tuple[Family, Shape]] = {
    "llama-gqa": ("llama", {"num_heads": 6, "num_kv_heads": 2, "head_dim": 32, "tied": True}),
    "llama-mha": (
        "llama",
        {"num_heads": 3, "num_kv_heads": 3, "head_dim": 64, "tied": False, "hidden_size": 84},
    ),
    "llama-mqa": ("llama", {"num_heads": 4, "num_kv_heads": 1, "head_dim": 80, "tied": False}),
    "mistral": ("mistral", {"num_heads": 4, "num_kv_heads": 2, "head_dim": 128, "tied": False}),
    "qwen2-gqa": ("qwen2", {"num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "tied": True}),
    "qwen2-mqa": ("qwen2", {"num_heads": 7, "num_kv_heads": 1, "head_dim": 32, "tied": False}),
    "qwen3-gqa": ("qwen3", {"num_heads": 4, "num_kv_heads": 2, "head_dim": 128, "tied": True}),
    "qwen3-mha": ("qwen3", {"num_heads": 2, "num_kv_heads": 2, "head_dim": 80, "tied": False}),
}


def load(path: str) -> LoadedModel:
    """A model in float32 on the CPU."""
    return load_model(path, dtype=torch.float32, device=torch.device("cpu"))


@pytest.fixture(scope="session")
def random_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """All of `RANDOM_MODELS`, by name."""
    pairs = {}
    for seed, (name, (family, shape)) in enumerate(RANDOM_MODELS.items()):
        folder = tmp_path_factory.mktemp("models") / name
        sized = Shape(hidden_size=96, max_position_embeddings=256) | shape
        make_model(folder, family, seed=seed, **sized)
        pairs[name] = Pair(load(str(folder)), Oracle.from_folder(folder))
    return pairs


@pytest.fixture(scope="session")
def nano_model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A very small model, for tests of bookkeeping with many steps."""
    folder = make_model(
        tmp_path_factory.mktemp("models") / "nano",
        num_layers=1,
        hidden_size=16,
        num_heads=1,
        num_kv_heads=1,
        head_dim=16,
        vocab_size=32,
    )
    return load(str(folder))


@pytest.fixture(scope="session")
def compilable_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose layers run in compiled code."""
    return make_model(tmp_path_factory.mktemp("models") / "compilable", hidden_size=64, num_layers=3)


@pytest.fixture(scope="session")
def compilable(compilable_folder: Path) -> Pair:
    return Pair(load(str(compilable_folder)), Oracle.from_folder(compilable_folder))


@pytest.fixture(scope="session")
def nano_gqa(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A model for the Triton kernels, on their device.

    It is small, because the interpreter takes a hundredth of a second for each tile.
    """
    folder = make_model(
        tmp_path_factory.mktemp("models") / "nano-gqa",
        num_layers=1,
        hidden_size=48,
        num_heads=3,
        num_kv_heads=1,
        head_dim=20,
        vocab_size=32,
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_model(str(folder), dtype=torch.float32, device=device)
    return Pair(model, Oracle.from_folder(folder))


@pytest.fixture(scope="session")
def tiny() -> Pair:
    """The embedded model. Its oracle computes with the weights that our loader read."""
    model = load("tiny")
    return Pair(model, Oracle.from_loaded(model))


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Pair:
    """SmolLM2-135M-Instruct. Its oracle computes with the weights that our loader read."""
    model = load(str(smollm2_path))
    return Pair(model, Oracle.from_loaded(model))
