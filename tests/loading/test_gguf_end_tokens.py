"""Where a GGUF file's model stops: by the file's keys, and by the names of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from gguf import GGUFWriter

from minipaged import LLM, SamplingParams
from minipaged.loading.gguf_end_tokens import END_NAMES, end_token_ids
from minipaged.loading.gguf_file import GgufFile
from minipaged.loading.loader import load_model
from minipaged.sampling.defaults import SamplingDefaults
from tests.loading.gguf_files import add_tensors, finish, model_writer, write_model, write_vocabulary
from tests.loading.test_gguf_tokenizer import BYTES
from tests.oracle import make_config, make_hf_model

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
LLAMA_3 = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>"]


def ends(path: Path, tokens: Sequence[str], kinds: Sequence[int], **keys: int) -> tuple[int, ...]:
    writer = GGUFWriter(path, "llama")
    write_vocabulary(writer, "gpt2", tokens, kinds=kinds)
    for name, token_id in keys.items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", token_id)
    finish(writer)
    return end_token_ids(GgufFile(path))


def test_the_keys_come_first_and_names_are_added(tmp_path: Path) -> None:
    kinds = [CONTROL] * len(LLAMA_3)
    assert ends(tmp_path / "a.gguf", LLAMA_3, kinds, eos=1) == (1, 2, 4)
    assert ends(tmp_path / "b.gguf", LLAMA_3, kinds, eos=4, eot=0) == (4, 0, 1, 2)
    assert ends(tmp_path / "c.gguf", LLAMA_3, kinds) == (1, 2, 4)


@pytest.mark.parametrize("name", sorted(END_NAMES))
def test_a_name_counts_for_control_tokens_alone(tmp_path: Path, name: str) -> None:
    tokens, kinds = ["a", name, f"{name}>", "<|im_start|>"], [NORMAL, CONTROL, CONTROL, CONTROL]
    assert ends(tmp_path / "control.gguf", tokens, kinds) == (1,)
    for kind in (NORMAL, USER_DEFINED):
        assert ends(tmp_path / f"{kind}.gguf", tokens, [NORMAL, kind, CONTROL, CONTROL]) == ()


def test_without_a_vocabulary_the_keys_are_all_there_is(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_eos_token_id(7)
    writer.add_eot_token_id(7)
    finish(writer)
    assert end_token_ids(GgufFile(tmp_path / "m.gguf")) == (7,)


def test_the_engine_stops_at_the_end_of_a_turn(tmp_path: Path) -> None:
    """The file's `eos` ends a document, but the model ends a turn with another token."""
    tokens = [*BYTES, "ab", *LLAMA_3]
    end_of_turn = tokens.index("<|eot_id|>")
    hf = make_hf_model(make_config(vocab_size=len(tokens), num_layers=1, tied=False))
    with torch.no_grad():  # the likeliest next token is always the same
        hf.get_parameter("model.norm.weight").zero_()[0] = 1.0
        hf.get_parameter("model.embed_tokens.weight")[:, 0] = 1.0
        hf.get_parameter("lm_head.weight").zero_()[end_of_turn, 0] = 1.0
    writer = model_writer(tmp_path / "m.gguf", hf)
    kinds = [NORMAL] * (len(BYTES) + 1) + [CONTROL] * len(LLAMA_3)
    write_vocabulary(writer, "gpt2", tokens, pre="gpt-2", merges=["a b"], kinds=kinds)
    writer.add_eos_token_id(tokens.index("<|end_of_text|>"))
    add_tensors(writer, hf)
    finish(writer)
    llm = LLM(str(tmp_path / "m.gguf"), device="cpu", num_blocks=40)
    [output] = llm.generate("a", SamplingParams(temperature=0, max_tokens=9))
    sample = output.outputs[0]
    assert (sample.token_ids, sample.finish_reason, sample.text) == ([end_of_turn], "stop", "")


def test_sampling_values_in_a_gguf_file(tmp_path: Path) -> None:
    hf = make_hf_model(make_config())

    def defaults(path: Path) -> SamplingDefaults:
        loaded = load_model(str(path), dtype=torch.float32, device=torch.device("cpu"), load_format="dummy")
        return loaded.config.sampling_defaults

    assert defaults(write_model(tmp_path / "none.gguf", hf)) == SamplingDefaults()
    writer = model_writer(tmp_path / "m.gguf", hf)
    writer.add_float32("general.sampling.temp", 0.6)
    writer.add_float32("general.sampling.top_p", 0.95)
    writer.add_int32("general.sampling.top_k", 20)
    writer.add_float32("general.sampling.min_p", float("nan"))
    writer.add_float32("general.sampling.penalty_repeat", 1.05)
    add_tensors(writer, hf)
    finish(writer)
    assert defaults(tmp_path / "m.gguf") == SamplingDefaults(
        temperature=0.6, top_p=0.95, top_k=20, repetition_penalty=1.05
    )
