"""The code in `model/` is what runs, if plain layers are asked for or if the code was edited."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from minipaged import LLM, EngineConfig, LLMEngine
from minipaged.config import EngineOptions
from minipaged.cpu.decoder import CompiledDecoder
from minipaged.errors import ConfigError
from minipaged.model.decoder import AttendFn, Decoder
from minipaged.model.layer import Layer, Mlp
from minipaged.stages import NUM_STAGES, stage_options
from tests.engine.driving import assert_greedy, greedy, run
from tests.model_pairs import Pair

PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8], [31, 41]]
PLAIN: dict[str, EngineOptions] = {
    "stage 1": {"kv_layout": "none", "attention_backend": "reference"},
    "reference": {"attention_backend": "reference"},
    "compiled_layers=False": {"compiled_layers": False},
    "contiguous": {"kv_layout": "contiguous", "compiled_layers": False},
}
SIZES = EngineOptions(device="cpu", block_size=4, num_blocks=33, max_model_len=64)


def at_stage(pair: Pair, stage: int, **options: object) -> LLMEngine:
    return LLMEngine(EngineConfig.at_stage(stage, **(SIZES | options)), pair.model)  # pyright: ignore


def tokens(engine: LLMEngine) -> list[list[int]]:
    return [list(output.outputs[0].token_ids) for output in run(engine, PROMPTS, greedy(6))]


def runs_compiled(engine: LLMEngine) -> bool:
    return isinstance(engine._runner._decoder, CompiledDecoder)


@pytest.mark.parametrize("stage", range(1, NUM_STAGES + 1))
def test_each_stage_runs_its_layers(tiny: Pair, stage: int) -> None:
    engine = at_stage(tiny, stage)
    assert runs_compiled(engine) == (stage >= 5)
    for output in run(engine, PROMPTS, greedy(6)):
        assert_greedy(tiny.oracle, output, 6)


@pytest.mark.parametrize("name", PLAIN)
def test_settings_that_are_plain(tiny: Pair, name: str) -> None:
    engine = LLMEngine(EngineConfig(**(SIZES | PLAIN[name])), tiny.model)
    assert engine._runner._decoder is tiny.model.decoder
    assert tokens(engine) == tokens(at_stage(tiny, 8))


def test_compiled_layers_with_the_readable_attention(tiny: Pair) -> None:
    for stage in (1, 2, 3):
        engine = at_stage(tiny, stage, compiled_layers=True)
        assert runs_compiled(engine)
        assert tokens(engine) == tokens(at_stage(tiny, 8))


# Edits such as a reader makes.


def relu(self: Mlp, hidden: Tensor) -> Tensor:
    gate, up = self.gate_up_proj(hidden).chunk(2, dim=-1)
    return self.down_proj(F.relu(gate).mul_(up))


def no_residual(self: Layer, hidden: Tensor, attended: Tensor) -> Tensor:
    hidden = self.self_attn.o_proj(attended.flatten(-2))
    return hidden + self.mlp(self.post_attention_layernorm(hidden))


def half_of_the_layers(self: Decoder, token_ids: Tensor, positions: Tensor, attend: AttendFn) -> Tensor:
    hidden, cos, sin = self.enter(token_ids, positions)
    for i, layer in enumerate(self.layers[: len(self.layers) // 2]):
        q, k, v = layer.before_attention(hidden, cos, sin)
        hidden = layer.after_attention(hidden, attend(i, q, k, v))
    return self.norm(hidden)


@pytest.mark.parametrize(
    ("where", "name", "edit"),
    [
        (Mlp, "forward", relu),
        (Layer, "after_attention", no_residual),
        (Decoder, "forward", half_of_the_layers),
        (Decoder, "logits", lambda self, hidden: -self.lm_head(hidden).to(torch.float32)),
    ],
)
def test_an_edit_takes_effect_at_every_stage(
    tiny: Pair, where: type, name: str, edit: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where layers would be compiled: edited ones are not, or they use the edited code."""
    before = tokens(at_stage(tiny, 8))
    monkeypatch.setattr(where, name, edit)
    plain = at_stage(tiny, 3)
    assert plain._runner._decoder is tiny.model.decoder
    after = tokens(plain)
    assert after != before
    for stage in range(1, NUM_STAGES + 1):
        assert tokens(at_stage(tiny, stage)) == after


@pytest.mark.parametrize(
    "options", [*map(stage_options, range(1, 5)), EngineOptions(attention_backend="reference")]
)
@pytest.mark.parametrize("method", [(Layer, "before_attention"), (Mlp, "forward"), (Decoder, "forward")])
def test_the_plain_code_is_called(
    tiny: Pair, options: EngineOptions, method: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LLMEngine(EngineConfig(**(options | SIZES)), tiny.model)

    def never(*_: object) -> Tensor:
        raise RuntimeError("a slip of the pen")

    monkeypatch.setattr(*method, never)
    with pytest.raises(RuntimeError, match="a slip of the pen"):
        run(engine, PROMPTS, greedy(2))


# Which decoder has which weights.


def test_an_engine_that_loads_its_model_has_its_matrices_once() -> None:
    engine = LLM("tiny", num_blocks=80, device="cpu").engine
    decoder = engine.model.decoder
    assert engine._runner._decoder is decoder
    assert isinstance(decoder, CompiledDecoder)
    assert all(weight.dim() == 3 for weight in decoder.parameters() if weight.numel() > 1000)


def test_its_model_may_be_given_to_any_other_engine(tiny: Pair) -> None:
    model = LLM("tiny", num_blocks=80, device="cpu").engine.model
    pair = Pair(model, tiny.oracle)
    for stage in (8, 3, 3):
        engine = at_stage(pair, stage)
        assert runs_compiled(engine) == (stage == 8)
        for output in run(engine, PROMPTS, greedy(6)):
            assert_greedy(tiny.oracle, output, 6)


def test_engines_of_both_kinds_share_a_model(tiny: Pair) -> None:
    plain, compiled, again = (at_stage(tiny, stage) for stage in (3, 8, 6))
    assert plain.model is compiled.model is tiny.model
    assert plain._runner._decoder is tiny.model.decoder
    assert compiled._runner._decoder is again._runner._decoder
    assert tokens(plain) == tokens(compiled) == tokens(plain)


def test_a_plain_engine_does_not_wait_for_the_compiler() -> None:
    code = (
        "import sys\n"
        "from minipaged import LLM, SamplingParams\n"
        "llm = LLM('tiny', device='cpu', num_blocks=80, attention_backend='reference')\n"
        "llm.generate('Once', SamplingParams(max_tokens=3))\n"
        "assert 'numba' not in sys.modules and 'minipaged.cpu.layers' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("value", ["yes", 1, "auto"])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="compiled_layers must be True or False or None"):
        EngineConfig(compiled_layers=value)  # pyright: ignore[reportArgumentType]


def test_what_cannot_be_compiled_is_refused_where_it_was_asked_for(tiny: Pair) -> None:
    with pytest.raises(ConfigError, match=r"compiled_layers=True, but .* float16"):
        LLM("tiny", dtype="float16", device="cpu", num_blocks=80, compiled_layers=True)
    assert not runs_compiled(LLM("tiny", dtype="float16", device="cpu", num_blocks=80).engine)
