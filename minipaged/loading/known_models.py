"""The shapes of well-known models, to compute their KV size without fetching anything."""

# ruff: noqa: E501  (the table needs long lines)

from __future__ import annotations

import difflib
from dataclasses import dataclass

from minipaged.errors import ConfigError
from minipaged.kv.size import KVShape

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes per number, for each dtype that weights and KV cache may have."""


@dataclass(frozen=True)
class ModelShape:
    """The figures of a model that determine the size of its KV cache and its weights.

    Attributes:
        name: the model's name.
        num_layers: number of decoder layers.
        num_heads: query heads per layer.
        num_kv_heads: key/value heads per layer.
        head_dim: numbers per head.
        hidden_size: numbers per token between layers.
        max_position_embeddings: longest sequence in the model's training, in tokens.
        dtype: dtype of the published weights, a key of `DTYPE_BYTES`.
        num_parameters: number of all weights, with tied embeddings counted once; `None` if unknown.
        hub_id: the hub repository whose config.json has these figures.
    """

    name: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    max_position_embeddings: int
    dtype: str
    num_parameters: int | None
    hub_id: str | None = None

    def kv_shape(self, dtype: str | None = None) -> KVShape:
        """The shape of the model's KV cache. The default for `dtype` is that of the published weights."""
        return KVShape(self.num_layers, self.num_kv_heads, self.head_dim, dtype_bytes(dtype or self.dtype))

    def weights_bytes(self, dtype: str | None = None) -> int | None:
        """Bytes of the weights in `dtype` (default: as published); `None` if unknown."""
        if self.num_parameters is None:
            return None
        return self.num_parameters * dtype_bytes(dtype or self.dtype)


def dtype_bytes(dtype: str) -> int:
    """Bytes per number.

    Raises:
        ConfigError: the engine does not support the dtype.
    """
    if dtype not in DTYPE_BYTES:
        raise ConfigError(f"dtype must be one of {', '.join(DTYPE_BYTES)}; not {dtype!r}")
    return DTYPE_BYTES[dtype]


# The figures are from each repository's config.json. Parameter counts follow from these figures, and a test
# counts them again. Qwen2.5's configs have 32,768 positions for the Instruct models. Mistral-7B has full
# attention since v0.2. OPT-175B was never on the hub; its figures are from its paper (arXiv 2205.01068,
# Table 1).
# fmt: off
KNOWN_MODELS = (
    #          name             layers heads KV  dim  hidden positions dtype       parameters      hub id
    ModelShape("OPT-13B",         40, 40, 40, 128, 5120,   2048, "float16",  12_853_473_280, "facebook/opt-13b"),
    ModelShape("OPT-66B",         64, 72, 72, 128, 9216,   2048, "float16",  65_719_701_504, "facebook/opt-66b"),
    ModelShape("OPT-175B",        96, 96, 96, 128, 12288,  2048, "float16", 174_604_468_224),
    ModelShape("Llama-13B",       40, 40, 40, 128, 5120,   2048, "float16",  13_015_864_320, "huggyllama/llama-13b"),
    ModelShape("Llama-2-7B",      32, 32, 32, 128, 4096,   4096, "float16",   6_738_415_616, "meta-llama/Llama-2-7b-hf"),
    ModelShape("Llama-2-13B",     40, 40, 40, 128, 5120,   4096, "float16",  13_015_864_320, "meta-llama/Llama-2-13b-hf"),
    ModelShape("Llama-2-70B",     80, 64,  8, 128, 8192,   4096, "float16",  68_976_648_192, "meta-llama/Llama-2-70b-hf"),
    ModelShape("Llama-3.1-8B",    32, 32,  8, 128, 4096, 131072, "bfloat16",  8_030_261_248, "meta-llama/Llama-3.1-8B"),
    ModelShape("Llama-3.1-70B",   80, 64,  8, 128, 8192, 131072, "bfloat16", 70_553_706_496, "meta-llama/Llama-3.1-70B"),
    ModelShape("Qwen2.5-1.5B",    28, 12,  2, 128, 1536,  32768, "bfloat16",  1_543_714_304, "Qwen/Qwen2.5-1.5B-Instruct"),
    ModelShape("Qwen2.5-7B",      28, 28,  4, 128, 3584,  32768, "bfloat16",  7_615_616_512, "Qwen/Qwen2.5-7B-Instruct"),
    ModelShape("Qwen2.5-72B",     80, 64,  8, 128, 8192,  32768, "bfloat16", 72_706_203_648, "Qwen/Qwen2.5-72B-Instruct"),
    ModelShape("Qwen3-0.6B",      28, 16,  8, 128, 1024,  40960, "bfloat16",    596_049_920, "Qwen/Qwen3-0.6B"),
    ModelShape("Qwen3-8B",        36, 32,  8, 128, 4096,  40960, "bfloat16",  8_190_735_360, "Qwen/Qwen3-8B"),
    ModelShape("Qwen3-32B",       64, 64,  8, 128, 5120,  40960, "bfloat16", 32_762_123_264, "Qwen/Qwen3-32B"),
    ModelShape("Mistral-7B",      32, 32,  8, 128, 4096,  32768, "bfloat16",  7_248_023_552, "mistralai/Mistral-7B-Instruct-v0.3"),
    ModelShape("SmolLM2-135M",    30,  9,  3,  64,  576,   8192, "bfloat16",    134_515_008, "HuggingFaceTB/SmolLM2-135M-Instruct"),
)
# fmt: on


def find_known_model(name: str) -> ModelShape | None:
    """The model with this name, this hub id, or this last part of a hub id. Case does not matter."""
    wanted = name.lower()
    for model in KNOWN_MODELS:
        hub_id = (model.hub_id or model.name).lower()
        if wanted in (model.name.lower(), hub_id, hub_id.rpartition("/")[2]):
            return model
    return None


def similar_names(name: str) -> list[str]:
    """Known names that are similar to `name`, the most similar first. For error messages."""
    lowered = {model.name.lower(): model.name for model in KNOWN_MODELS}
    return [lowered[match] for match in difflib.get_close_matches(name.lower(), lowered, n=3)]
