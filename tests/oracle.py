"""The oracle of all tests: transformers, in float32, with eager attention.

It also makes small random models of every supported family, as folders that both sides read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict, Unpack

import torch
from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from minipaged.loading.hf_config import read_hf_config
from minipaged.loading.loader import LoadedModel
from minipaged.model.config import ModelConfig

Family = Literal["llama", "mistral", "qwen2", "qwen3"]
FAMILIES: tuple[Family, ...] = ("llama", "mistral", "qwen2", "qwen3")


class Shape(TypedDict, total=False):
    """The options for a random model's shape. Options that are left out get small values."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    tied: bool
    attention_bias: bool
    rope: dict[str, float | str]
    eos_token_id: int | list[int] | None


class Oracle:
    """A transformers model that answers questions about token ids."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model.eval()
        # Each question says where to stop. The model's own generation settings are ignored.
        self.model.generation_config = GenerationConfig()

    @classmethod
    def from_folder(cls, folder: Path, dtype: torch.dtype = torch.float32) -> Oracle:
        """The model in a folder, read by transformers itself."""
        return cls(
            AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, attn_implementation="eager", local_files_only=True
            )
        )

    @classmethod
    def from_loaded(cls, loaded: LoadedModel) -> Oracle:
        """transformers' arithmetic with weights that our loader read, for `tiny` and for GGUF files.

        Other tests check that the loader reads the weights correctly.
        """
        hf = AutoModelForCausalLM.from_config(hf_config(loaded.config), attn_implementation="eager")
        missing, unexpected = hf.load_state_dict(
            {name: slot.float().cpu() for name, slot in loaded.decoder.weight_views().items()}, strict=False
        )
        assert not unexpected
        assert set(missing) <= {"lm_head.weight"}
        return cls(hf)

    @torch.inference_mode()
    def logits(self, token_ids: Sequence[int]) -> Tensor:
        """[T] token ids -> [T, vocab] float32."""
        return self.model(torch.tensor([list(token_ids)])).logits[0].float()

    def logprobs(self, token_ids: Sequence[int]) -> Tensor:
        """[T] token ids -> [T, vocab] float32: row t holds the log-probabilities of token t + 1."""
        return self.logits(token_ids).log_softmax(-1)

    @torch.inference_mode()
    def greedy(
        self, token_ids: Sequence[int], max_new_tokens: int, eos_token_ids: Sequence[int] = ()
    ) -> list[int]:
        """The most likely continuation, token by token, up to and including an end token."""
        prompt = torch.tensor([list(token_ids)])
        settings = GenerationConfig(
            do_sample=False,
            max_new_tokens=max_new_tokens,
            eos_token_id=list(eos_token_ids) or None,
            pad_token_id=0,
        )
        output = self.model.generate(  # pyright: ignore[reportCallIssue]
            prompt, attention_mask=torch.ones_like(prompt), generation_config=settings
        )
        assert isinstance(output, Tensor)
        return output[0, len(token_ids) :].tolist()


def make_config(family: Family = "llama", **shape: Unpack[Shape]) -> PreTrainedConfig:
    """A transformers configuration; `shape` as in `Shape`."""
    head_dim = shape.get("head_dim", 32)
    num_heads = shape.get("num_heads", 4)
    common = {
        "vocab_size": shape.get("vocab_size", 257),
        "hidden_size": shape.get("hidden_size", 64),
        "intermediate_size": shape.get("intermediate_size", 96),
        "num_hidden_layers": shape.get("num_layers", 2),
        "num_attention_heads": num_heads,
        "num_key_value_heads": shape.get("num_kv_heads", 2),
        "head_dim": head_dim,
        "max_position_embeddings": shape.get("max_position_embeddings", 512),
        "tie_word_embeddings": shape.get("tied", False),
        "rms_norm_eps": 1e-5,
        "bos_token_id": None,
        "eos_token_id": shape.get("eos_token_id"),
        "rope_parameters": shape.get("rope", {"rope_type": "default", "rope_theta": 10_000.0}),
    }
    if family == "mistral":
        return MistralConfig(**common, sliding_window=None)
    if family == "qwen2":
        return Qwen2Config(**common)
    bias = shape.get("attention_bias", False)
    if family == "qwen3":
        return Qwen3Config(**common, attention_bias=bias)
    return LlamaConfig(**common, attention_bias=bias)


def config_of(config: PreTrainedConfig) -> ModelConfig:
    """Our ModelConfig, read from a transformers configuration."""
    return read_hf_config(config.to_dict())


def make_hf_model(config: PreTrainedConfig, seed: int = 0) -> PreTrainedModel:
    """A model with random weights. They are so large that the most likely token is clear."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        scaled = noise * parameter.shape[1] ** -0.5 if parameter.dim() == 2 else noise * 0.2
        parameter.data.copy_(scaled)
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter.data += 1.0
    return model


def make_model(
    folder: Path,
    family: Family = "llama",
    *,
    seed: int = 0,
    max_shard_size: str = "1GB",
    **shape: Unpack[Shape],
) -> Path:
    """Write a random model to a folder: config.json and safetensors, no tokenizer.

    Args:
        folder: the folder, which is created.
        max_shard_size: a small size, such as "20KB", gives several shards with an index.
        shape: as in `Shape`.
    """
    model = make_hf_model(make_config(family, **shape), seed)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return folder


def add_byte_tokenizer(folder: Path, chat_template: str | None = None) -> Path:
    """Add a tokenizer with 257 tokens: one for each byte, and `<|endoftext|>`."""
    alphabet = sorted(ByteLevel.alphabet())
    backend = Tokenizer(BPE(vocab={character: i for i, character in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    hf = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|endoftext|>", chat_template=chat_template
    )
    hf.save_pretrained(folder)
    return folder


def hf_config(config: ModelConfig) -> PreTrainedConfig:
    """The transformers configuration of a model that our loader read."""
    rope: dict[str, float | str] = {"rope_type": "default", "rope_theta": config.rope.theta}
    if config.rope.scaling in ("linear", "llama3"):
        rope |= {"rope_type": config.rope.scaling, "factor": config.rope.factor}
    if config.rope.scaling == "llama3":
        rope |= {
            "low_freq_factor": config.rope.low_freq_factor,
            "high_freq_factor": config.rope.high_freq_factor,
            "original_max_position_embeddings": config.rope.original_max_position_embeddings,
        }
    assert config.rope.scaling != "divisors"
    hf = make_config(
        config.architecture,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_position_embeddings,
        tied=config.tie_word_embeddings,
        attention_bias=config.o_bias,
        rope=rope,
        eos_token_id=list(config.eos_token_ids) or None,
    )
    hf.rms_norm_eps = config.rms_norm_eps
    return hf


def edit_json(path: Path, **changes: object) -> None:
    """Set keys of a JSON file. `None` removes a key."""
    content = json.loads(path.read_text())
    for key, value in changes.items():
        content.pop(key, None) if value is None else content.__setitem__(key, value)
    path.write_text(json.dumps(content))
