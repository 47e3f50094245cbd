"""Writes small GGUF files in the form of llama.cpp's converter, with the `gguf` package's writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize, quantize
from torch import Tensor
from transformers import PreTrainedModel

F32 = GGMLQuantizationType.F32
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def model_writer(path: Path, hf: PreTrainedModel, **overrides: int | float | str) -> GGUFWriter:
    """A writer with the metadata of a transformers model. `overrides` sets keys, with `__` for `.`."""
    config = hf.config
    architecture = {"mistral": "llama"}.get(config.model_type, config.model_type)
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    for key, value in overrides.items():
        name = f"{architecture}.{key.replace('__', '.')}"
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        else:
            writer.add_float32(name, value)
    return writer


def add_tensors(writer: GGUFWriter, hf: PreTrainedModel, kind: GGMLQuantizationType = F32) -> None:
    """Add all weights, with matrices in `kind`, and rows of Q and K in llama.cpp's order."""
    for name, parameter in hf.named_parameters():
        stem, suffix = name.rsplit(".", 1)
        values = parameter.detach().numpy()
        if writer.arch == "llama" and stem.endswith(("q_proj", "k_proj")):
            heads = values.shape[0] // hf.config.head_dim
            values = interleave(values, heads)
        if values.ndim == 2 and kind != F32:
            writer.add_tensor(gguf_name(stem, suffix), quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(stem, suffix), values)


def interleave(values: np.ndarray, heads: int) -> np.ndarray:
    """The permutation of llama.cpp's converter: rows i and i + D / 2 of a head become neighbours."""
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))


def gguf_name(stem: str, suffix: str) -> str:
    """The GGUF name of a Hugging Face tensor."""
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        return f"blk.{layer}.{NAMES[rest]}.{suffix}"
    return f"{NAMES[stem]}.{suffix}"


def finish(writer: GGUFWriter) -> None:
    """Write everything and close the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_model(
    path: Path,
    hf: PreTrainedModel,
    kind: GGMLQuantizationType = F32,
    **overrides: int | float | str,
) -> Path:
    """Write a GGUF file of a transformers model, without a tokenizer."""
    writer = model_writer(path, hf, **overrides)
    add_tensors(writer, hf, kind)
    finish(writer)
    return path


def write_vocabulary(
    writer: GGUFWriter,
    model: str,
    tokens: Sequence[str],
    *,
    pre: str | None = None,
    merges: Sequence[str] = (),
    kinds: Sequence[int] = (),
    scores: Sequence[float] = (),
) -> None:
    """Add the vocabulary to the metadata."""
    writer.add_tokenizer_model(model)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(list(tokens))
    if merges:
        writer.add_token_merges(list(merges))
    if kinds:
        writer.add_token_types(list(kinds))
    if scores:
        writer.add_token_scores(list(scores))


def quantised(weight: Tensor, kind: GGMLQuantizationType) -> Tensor:
    """A matrix after quantisation to `kind` and back. Each row is quantised separately."""
    if kind == F32 or weight.dim() < 2:
        return weight
    return torch.from_numpy(np.array(dequantize(quantize(weight.detach().numpy(), kind), kind)))
