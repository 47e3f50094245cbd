"""The table of known models, compared with transformers' code for each architecture."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from minipaged.errors import ConfigError
from minipaged.loading.known_models import KNOWN_MODELS, ModelShape, find_known_model, similar_names

BYTES_PER_TOKEN = {
    "OPT-13B": 819_200,
    "OPT-66B": 2_359_296,
    "OPT-175B": 4_718_592,
    "Llama-13B": 819_200,
    "Llama-2-7B": 524_288,
    "Llama-2-13B": 819_200,
    "Llama-2-70B": 327_680,
    "Llama-3.1-8B": 131_072,
    "Llama-3.1-70B": 327_680,
    "Qwen2.5-1.5B": 28_672,
    "Qwen2.5-7B": 57_344,
    "Qwen2.5-72B": 327_680,
    "Qwen3-0.6B": 114_688,
    "Qwen3-8B": 147_456,
    "Qwen3-32B": 262_144,
    "Mistral-7B": 131_072,
    "SmolLM2-135M": 23_040,
}

# Figures from the same configs that are not in the table: feed-forward size, vocabulary, tied embeddings.
REST = {
    "OPT-13B": (20480, 50272, True),
    "OPT-66B": (36864, 50272, True),
    "OPT-175B": (49152, 50272, True),
    "Llama-13B": (13824, 32000, False),
    "Llama-2-7B": (11008, 32000, False),
    "Llama-2-13B": (13824, 32000, False),
    "Llama-2-70B": (28672, 32000, False),
    "Llama-3.1-8B": (14336, 128256, False),
    "Llama-3.1-70B": (28672, 128256, False),
    "Qwen2.5-1.5B": (8960, 151936, True),
    "Qwen2.5-7B": (18944, 152064, False),
    "Qwen2.5-72B": (29568, 152064, False),
    "Qwen3-0.6B": (3072, 151936, True),
    "Qwen3-8B": (12288, 151936, False),
    "Qwen3-32B": (25600, 151936, False),
    "Mistral-7B": (14336, 32768, False),
    "SmolLM2-135M": (1536, 49152, True),
}


def config_of(model: ModelShape, num_layers: int) -> PretrainedConfig:
    intermediate_size, vocab_size, tied = REST[model.name]
    if model.name.startswith("OPT"):
        return OPTConfig(
            hidden_size=model.hidden_size,
            word_embed_proj_dim=model.hidden_size,
            num_hidden_layers=num_layers,
            num_attention_heads=model.num_heads,
            ffn_dim=intermediate_size,
            vocab_size=vocab_size,
            max_position_embeddings=model.max_position_embeddings,
            tie_word_embeddings=tied,
        )
    families = {"Qwen2.5": Qwen2Config, "Qwen3": Qwen3Config, "Mistral": MistralConfig}
    family = families.get(model.name.partition("-")[0], LlamaConfig)
    return family(
        hidden_size=model.hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=model.num_heads,
        num_key_value_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        intermediate_size=intermediate_size,
        vocab_size=vocab_size,
        tie_word_embeddings=tied,
    )


def count_parameters(config: PretrainedConfig) -> int:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("model", KNOWN_MODELS, ids=lambda model: model.name)
def test_parameters(model: ModelShape) -> None:
    # All layers are equal, so models of one and of two layers show how much each layer adds.
    one, two = (count_parameters(config_of(model, num_layers)) for num_layers in (1, 2))
    assert model.num_parameters == one + (model.num_layers - 1) * (two - one)


@pytest.mark.parametrize("model", KNOWN_MODELS, ids=lambda model: model.name)
def test_bytes_per_token(model: ModelShape) -> None:
    assert model.kv_shape().bytes_per_token == BYTES_PER_TOKEN[model.name]
    assert model.kv_shape("float32").bytes_per_token == 2 * BYTES_PER_TOKEN[model.name]


def test_weights_of_opt_13b() -> None:
    """Paper, Table 1: 26 GB."""
    model = find_known_model("OPT-13B")
    assert model is not None
    assert model.weights_bytes() == 2 * 12_853_473_280
    assert model.weights_bytes("float32") == 4 * 12_853_473_280


@pytest.mark.parametrize(
    "name", ["Qwen2.5-1.5B", "qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B-Instruct", "qwen2.5-1.5b-INSTRUCT"]
)
def test_lookup(name: str) -> None:
    model = find_known_model(name)
    assert model is not None
    assert model.name == "Qwen2.5-1.5B"


@pytest.mark.parametrize("name", ["", "Qwen2.5", "Qwen/Qwen2.5-1.5B", "gpt2"])
def test_lookup_of_something_else(name: str) -> None:
    assert find_known_model(name) is None


def test_names_are_distinct() -> None:
    assert {model.name for model in KNOWN_MODELS} == set(BYTES_PER_TOKEN) == set(REST)
    for model in KNOWN_MODELS:
        assert find_known_model(model.name) is model
        assert model.hub_id is None or find_known_model(model.hub_id) is model


def test_similar_names() -> None:
    assert similar_names("lama-2-7b")[0] == "Llama-2-7B"
    assert similar_names("xyz") == []


def test_a_dtype_that_the_engine_lacks() -> None:
    with pytest.raises(ConfigError, match="dtype must be one of float32, float16, bfloat16; not 'int4'"):
        KNOWN_MODELS[0].kv_shape("int4")
