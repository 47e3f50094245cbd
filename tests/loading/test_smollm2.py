"""SmolLM2-135M-Instruct, a real model, from the hub or from the wheel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from gguf.quants import dequantize

from minipaged.loading.loader import LoadedModel, load_model
from tests.loading.gguf_files import gguf_name
from tests.model.dense import packed_logits
from tests.oracle import Oracle

pytestmark = pytest.mark.smollm2


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> LoadedModel:
    return load_model("smollm2-135m", dtype=torch.float32, device=torch.device("cpu"))


def test_its_shape(smollm2: LoadedModel, smollm2_path: Path) -> None:
    config = smollm2.config
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (30, 9, 3, 64)
    assert (config.hidden_size, config.vocab_size, config.max_position_embeddings) == (576, 49152, 8192)
    assert config.tie_word_embeddings
    # The hub's files name `<|im_end|>`; in a GGUF file the ends are found by name as well.
    assert config.eos_token_ids == ((2,) if smollm2_path.is_dir() else (2, 0, 4))
    assert sum(parameter.numel() for parameter in smollm2.decoder.parameters()) == 134_515_008


def test_weights_equal_an_independent_reading(smollm2: LoadedModel, smollm2_path: Path) -> None:
    if smollm2_path.is_dir():
        pytest.skip("this machine has safetensors, not GGUF")
    stored = {tensor.name: tensor for tensor in GGUFReader(smollm2_path).tensors}
    slots = smollm2.decoder.weight_views()
    assert len(slots) == len(stored) == 272
    # In the file, row i of a head's first half is at 2i, and row i of its second half is at 2i + 1.
    head = [2 * i + half for half in (0, 1) for i in range(32)]
    for name, slot in slots.items():
        tensor = stored[gguf_name(*name.rsplit(".", 1))]
        values = dequantize(tensor.data, tensor.tensor_type)
        if ".q_proj." in name or ".k_proj." in name:
            values = values[[start + row for start in range(0, len(values), 64) for row in head]]
        assert torch.equal(slot, torch.from_numpy(np.array(values))), name


def test_logits_and_text_equal_transformers(smollm2: LoadedModel) -> None:
    oracle = Oracle.from_loaded(smollm2)
    tokenizer = smollm2.tokenizer
    assert tokenizer is not None
    prompts = [
        tokenizer.apply_chat_template([{"role": "user", "content": "What is the capital of France?"}]),
        tokenizer.encode("def fibonacci(n):\n    "),
    ]
    for prompt, ours in zip(prompts, packed_logits(smollm2.decoder, prompts), strict=True):
        assert (ours - oracle.logits(prompt)).abs().max() < 1e-3
        assert torch.allclose(ours.log_softmax(-1), oracle.logprobs(prompt), atol=1e-3)
    answer = oracle.greedy(prompts[0], 30, smollm2.config.eos_token_ids)
    assert tokenizer.decode(answer) == "The capital of France is Paris."
    assert answer[-1] in smollm2.config.eos_token_ids


def test_its_tokenizer(smollm2: LoadedModel) -> None:
    tokenizer = smollm2.tokenizer
    assert tokenizer is not None
    assert tokenizer.vocab_size == 49152
    assert tokenizer.eos_token_id == 2
    # Each digit is a token of its own, and two spaces before a digit are one token.
    assert [tokenizer.decode([i]) for i in tokenizer.encode("a  42")] == ["a", "  ", "4", "2"]
    for text in ("Hello, world!", "naïve 日本語 🎉", "\tx = [1, 2]\n\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
