"""Weights from a GGUF file, dequantised piece by piece into the decoder's weight views."""

from __future__ import annotations

import re

import numpy as np
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from torch import Tensor

from minipaged.errors import WeightsError
from minipaged.loading.gguf_file import GgufFile
from minipaged.model.config import ModelConfig

_WHOLE_MODEL = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_ROWS_AT_ONCE = 4096


class GgufSource:
    """The tensors of a GGUF file, under their Hugging Face names. See `TensorSource`.

    For the llama architecture, GGUF orders the rows of the Q and K projections for the original RoPE, which
    rotates element 2i with element 2i + 1. Hugging Face and this project rotate element i with element
    i + D / 2. So the rows are reordered: in each head, row (i, half) comes from row 2i + half.
    """

    def __init__(self, file: GgufFile, config: ModelConfig) -> None:
        self.description = str(file.path)
        self._file = file
        self._head_dim = config.head_dim
        self._interleaved = config.architecture == "llama"
        # rope_freqs.weight was read as part of the configuration.
        self._names = {_hf_name(name): name for name in file.tensors if name != "rope_freqs.weight"}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor. A tensor without a Hugging Face name keeps its name from the file."""
        return {name: self._file.tensors[stored].shape for name, stored in self._names.items()}

    def read_into(self, name: str, view: Tensor) -> None:
        """Dequantise a tensor into `view`, a few heads' rows at a time.

        Raises:
            WeightsError: the gguf package cannot dequantise the tensor's number format.
        """
        tensor = self._file.tensors[self._names[name]]
        data = self._file.data(tensor)  # [rows, bytes per row]
        interleaved = self._interleaved and name.split(".")[-2] in ("q_proj", "k_proj")
        if len(tensor.shape) == 1:
            values = self._dequantize(name, data, tensor.kind)[0]  # [size]
            view.copy_(torch.from_numpy(self._to_halves(values) if interleaved else values))
            return
        step = max(1, _ROWS_AT_ONCE // self._head_dim) * self._head_dim
        for start in range(0, len(data), step):
            rows = self._dequantize(name, data[start : start + step], tensor.kind)  # [step, columns]
            view[start : start + step].copy_(torch.from_numpy(self._to_halves(rows) if interleaved else rows))

    def _to_halves(self, rows: np.ndarray) -> np.ndarray:
        pairs = rows.reshape(-1, self._head_dim // 2, 2, *rows.shape[1:])  # [heads, D / 2, 2, ...]
        return pairs.swapaxes(1, 2).reshape(rows.shape)

    def _dequantize(self, name: str, data: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
        try:
            return dequantize(data, kind)
        except NotImplementedError as error:
            raise WeightsError(f"{name} in {self.description} cannot be dequantised: {error}") from error


def _hf_name(stored: str) -> str:
    if match := _LAYER.fullmatch(stored):
        layer, name, suffix = match.groups()
        if name in _IN_LAYER:
            return f"model.layers.{layer}.{_IN_LAYER[name]}.{suffix}"
    name, _, suffix = stored.rpartition(".")
    return f"{_WHOLE_MODEL[name]}.{suffix}" if name in _WHOLE_MODEL else stored
