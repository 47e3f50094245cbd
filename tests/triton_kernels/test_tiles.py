"""Tiles fit on every GPU that is listed. A model whose tiles do not fit is refused when an engine is made."""

from __future__ import annotations

import itertools

import pytest
import torch

pytest.importorskip("triton")

from minipaged.bench.kernel_resources import TARGETS
from minipaged.errors import ConfigError
from minipaged.triton_kernels.gpu import Gpu
from minipaged.triton_kernels.tiles import decode_tiles, prefill_tiles
from tests.engine.driving import make_engine
from tests.model_pairs import Pair

RULES = (decode_tiles, prefill_tiles)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@pytest.mark.parametrize("target", TARGETS)
def test_all_heads_fit_on_every_gpu(target: str) -> None:
    """What `shared_bytes` promises is compared with the compiler's result in tests/bench."""
    gpu = TARGETS[target]
    for rule, group, head_dim, dtype in itertools.product(RULES, range(1, 9), (64, 80, 96, 128, 256), DTYPES):
        tiles = rule(group, head_dim, dtype, gpu)
        assert tiles.shared_bytes <= gpu.program_bytes
        assert tiles.rows >= group
        assert tiles.padded_dim >= head_dim
        if target not in ("sm_75", "gfx942"):
            assert tiles.num_stages == 3, "tiles are loaded ahead"


def test_without_tensor_cores_half_precision_is_float32() -> None:
    for rule, group, head_dim in itertools.product(RULES, (1, 8), (64, 128, 256)):
        half, single = (rule(group, head_dim, dtype, TARGETS["sm_75"]) for dtype in DTYPES[1:])
        assert half == single


def test_the_refusal_has_the_arithmetic() -> None:
    """128 query heads for one KV head, in float32: (128 + 16 + 16) × 256 numbers and 128 × 16 weights."""
    expected = (
        r"a program of prefill may need 174,080 bytes of shared memory \(128 queries, 16 keys and 16 values "
        r"of 256 × 4 bytes each, and their weights\), and can have 65,536: use attention_backend='reference'"
    )
    with pytest.raises(ConfigError, match=expected):
        prefill_tiles(128, 256, torch.float32, TARGETS["sm_75"])


def test_an_engine_is_refused_when_it_is_made(nano_gqa: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at its first prompt. With another attention the same engine is made."""
    small = Gpu(1, registers=65_536, threads=1024, shared_bytes=8192, program_bytes=8192)
    monkeypatch.setattr(Gpu, "of", lambda device: small)
    options = {"device": "cpu", "num_blocks": 8, "max_model_len": 16}
    with pytest.raises(ConfigError, match=r"may need .* bytes of shared memory .* can have 8,192"):
        make_engine(nano_gqa.model, attention_backend="triton", **options)
    make_engine(nano_gqa.model, attention_backend="reference", **options)
