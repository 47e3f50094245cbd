"""Writes a loaded model to files for other engines. The weights are equal, so greedy tokens can be compared.

No tokenizer is written, since the workloads are token ids.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from minipaged.errors import UnsupportedModelError
from minipaged.loading.loader import LoadedModel
from minipaged.model.config import ModelConfig, RopeConfig
from minipaged.model.rope import frequencies

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

GGUF_NAMES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}


def write_hf_folder(model: LoadedModel, folder: Path) -> Path:
    """Write config.json and model.safetensors, in the model's dtype.

    Returns:
        The folder, which this function creates.

    Raises:
        UnsupportedModelError: config.json cannot express the model's RoPE frequencies.
    """
    from safetensors.torch import save_file

    dtype = str(model.decoder.dtype).removeprefix("torch.")
    _hf_config(model.config, dtype).save_pretrained(folder)
    # Copies, because the views share memory, and safetensors accepts no tensors that share memory.
    tensors = {name: view.detach().cpu().clone() for name, view in model.decoder.weight_views().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_gguf(model: LoadedModel, path: Path) -> Path:
    """Write a GGUF file. Vectors are float32, as llama.cpp requires. Matrices have the model's dtype.

    Returns:
        The path.
    """
    import gguf
    from gguf.quants import quantize

    config = model.config
    is_wide = model.decoder.dtype is torch.float32
    name = GGUF_NAMES[config.architecture]
    writer = gguf.GGUFWriter(path, name)
    writer.add_name(Path(model.name).name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_layers)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope.theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32 if is_wide else gguf.LlamaFileType.MOSTLY_BF16)
    if config.rope.scaling == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.rope.factor)
    elif config.rope.scaling != "default":
        writer.add_tensor("rope_freqs.weight", _rope_divisors(config.rope, config.head_dim).numpy())
    architecture = {value: key for key, value in gguf.MODEL_ARCH_NAMES.items()}[name]
    names = gguf.get_tensor_name_map(architecture, config.num_layers)
    for hf_name, view in model.decoder.weight_views().items():
        stored = names.get_name(hf_name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, f"the gguf package has no name for {hf_name}"
        values = view.detach().cpu().float()
        if name == "llama" and hf_name.split(".")[-2] in ("q_proj", "k_proj"):
            values = _to_pairs(values, config.head_dim)
        if is_wide or values.dim() == 1:
            writer.add_tensor(stored, values.contiguous().numpy())
        else:
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(stored, quantize(values.contiguous().numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _hf_config(config: ModelConfig, dtype: str) -> PreTrainedConfig:
    from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

    kinds: dict[str, type[PreTrainedConfig]] = {
        "llama": LlamaConfig,
        "mistral": MistralConfig,
        "qwen2": Qwen2Config,
        "qwen3": Qwen3Config,
    }
    kind = kinds[config.architecture]
    options: dict[str, object] = {
        "architectures": [kind.__name__.removesuffix("Config") + "ForCausalLM"],
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_word_embeddings,
        "rope_parameters": _rope_parameters(config.rope),
        "bos_token_id": config.bos_token_id,
        "eos_token_id": list(config.eos_token_ids) or None,
        "dtype": dtype,
    }
    if config.architecture in ("llama", "qwen3"):
        options["attention_bias"] = config.qkv_bias
    if config.architecture == "mistral":
        options["sliding_window"] = None
    return kind.from_dict(options)


def _rope_parameters(rope: RopeConfig) -> dict[str, float | str]:
    if rope.scaling == "divisors":
        raise UnsupportedModelError(
            "a Hugging Face configuration cannot express the RoPE divisors of a GGUF file: use the model's "
            "folder instead of its GGUF file"
        )
    parameters: dict[str, float | str] = {"rope_type": rope.scaling, "rope_theta": rope.theta}
    if rope.scaling in ("linear", "llama3"):
        parameters["factor"] = rope.factor
    if rope.scaling == "llama3":
        parameters["low_freq_factor"] = rope.low_freq_factor
        parameters["high_freq_factor"] = rope.high_freq_factor
        parameters["original_max_position_embeddings"] = rope.original_max_position_embeddings
    return parameters


def _rope_divisors(rope: RopeConfig, head_dim: int) -> Tensor:
    """The divisor of each unscaled frequency: float32 `[head_dim / 2]`."""
    return frequencies(RopeConfig(rope.theta), head_dim) / frequencies(rope, head_dim)


def _to_pairs(rows: Tensor, head_dim: int) -> Tensor:
    """Reorder the rows of Q and K as GGUF does for the llama architecture.

    In each head, row 2i + half comes from row (half, i). `loading/gguf_source.py` does the opposite.
    """
    halves = rows.unflatten(0, (-1, 2, head_dim // 2))  # [heads, 2, D / 2, ...]
    return halves.transpose(1, 2).reshape(rows.shape)
