"""KV arithmetic: the numbers of the paper and of vLLM, and properties that hold for all sizes."""

from __future__ import annotations

import subprocess
import sys
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.errors import ConfigError
from minipaged.kv.size import (
    KVShape,
    blocks_needed,
    bytes_per_block,
    log_line,
    max_concurrency,
    max_model_len_that_fits,
    num_blocks_that_fit,
    resolve_max_model_len,
)

OPT_13B = KVShape(num_layers=40, num_kv_heads=40, head_dim=128, dtype_bytes=2)
QWEN_1_5B = KVShape(num_layers=28, num_kv_heads=2, head_dim=128, dtype_bytes=2)
GIB = 2**30


def test_opt_13b() -> None:
    """Paper, section 3: 800 KB per token, 1.6 GB for 2048 tokens."""
    assert OPT_13B.bytes_per_token == 819_200 == 800 * 1024
    assert OPT_13B.bytes_per_token * 2048 == 1_677_721_600


def test_qwen2_5_1_5b() -> None:
    assert QWEN_1_5B.bytes_per_token == 28_672 == 28 * 1024
    assert QWEN_1_5B.bytes_per_token * 2048 == 56 * 2**20
    assert OPT_13B.bytes_per_token / QWEN_1_5B.bytes_per_token == pytest.approx(28.57, abs=0.01)


def test_slots_of_12_gib() -> None:
    """Paper, Table 1: 15.7K slots. In decimal units, 12 GB and 800 KB, they would be 15,000."""
    assert 12 * GIB // OPT_13B.bytes_per_token == 15_728
    assert num_blocks_that_fit(12 * GIB, OPT_13B, block_size=1) == 15_728
    blocks = num_blocks_that_fit(12 * GIB, OPT_13B, block_size=16)
    assert blocks == 983
    assert blocks * 16 == 15_728
    assert 12 * 10**9 // 800_000 == 15_000


def test_seven_requests_fit() -> None:
    """Paper, Fig. 2: 7 reservations of 2048, and 8.9 % remain. With a null block both are the same."""
    blocks = num_blocks_that_fit(12 * GIB, OPT_13B, block_size=16)
    assert 15_728 // 2048 == (blocks - 1) // blocks_needed(2048, 16) == 7
    left_over = 15_728 - 7 * 2048
    assert left_over / 15_728 == pytest.approx(0.0885, abs=0.0001)


def test_log_line() -> None:
    line = "KV cache size: 15,728 tokens, Maximum concurrency for 2,048 tokens per request: 7.68x"
    assert log_line(983, 16, 2048) == f"GPU {line}"
    assert log_line(983, 16, 2048, "CPU") == f"CPU {line}"
    assert max_concurrency(983, 16, 2048) == 983 / 128


def test_a_length_between_two_blocks_needs_the_whole_last_one() -> None:
    assert max_concurrency(10, 16, 17) == 5.0
    assert [blocks_needed(n, 4) for n in range(9)] == [0, 1, 1, 1, 1, 2, 2, 2, 2]


@given(num_tokens=st.integers(0, 10**7), block_size=st.integers(1, 256))
def test_blocks_needed_is_the_least_that_holds_them(num_tokens: int, block_size: int) -> None:
    blocks = blocks_needed(num_tokens, block_size)
    assert blocks * block_size >= num_tokens > (blocks - 1) * block_size


@given(
    shape=st.builds(
        KVShape, st.integers(1, 128), st.integers(1, 128), st.integers(1, 256), st.sampled_from([1, 2, 4])
    ),
    block_size=st.integers(1, 256),
    memory=st.integers(0, 2**40),
)
def test_blocks_that_fit_fill_the_memory(shape: KVShape, block_size: int, memory: int) -> None:
    blocks = num_blocks_that_fit(memory, shape, block_size)
    size = bytes_per_block(shape, block_size)
    assert blocks * size <= memory < (blocks + 1) * size


def test_less_than_no_memory_is_no_block() -> None:
    assert num_blocks_that_fit(-1, OPT_13B, 16) == 0
    assert max_model_len_that_fits(0, 16) == max_model_len_that_fits(1, 16) == 0


@given(num_blocks=st.integers(2, 10_000), block_size=st.integers(1, 256), model_max=st.integers(1, 200_000))
def test_the_longest_that_fits_fits_and_one_more_does_not(
    num_blocks: int, block_size: int, model_max: int
) -> None:
    longest = resolve_max_model_len("auto", model_max, num_blocks, block_size)
    assert longest == resolve_max_model_len(-1, model_max, num_blocks, block_size)
    assert resolve_max_model_len(longest, model_max, num_blocks, block_size) == longest
    assert blocks_needed(longest, block_size) <= num_blocks - 1
    if longest < model_max:
        with pytest.raises(ConfigError):
            resolve_max_model_len(longest + 1, model_max, num_blocks, block_size)
        with pytest.raises(ConfigError):
            resolve_max_model_len(None, model_max, num_blocks, block_size)
    else:
        assert resolve_max_model_len(None, model_max, num_blocks, block_size) == model_max


def test_a_pool_too_small_says_the_arithmetic_and_what_would_fit() -> None:
    with pytest.raises(ConfigError) as refused:
        resolve_max_model_len(None, 2048, num_blocks=128, block_size=16)
    message = str(refused.value)
    assert "model's max_model_len of 2,048 tokens needs 128 blocks of 16 tokens" in message
    assert "pool has 128 blocks, of which one is the null block" in message
    assert "127 × 16 = 2,032 tokens" in message
    assert resolve_max_model_len(2032, 2048, num_blocks=128, block_size=16) == 2032
    assert resolve_max_model_len(None, 2048, num_blocks=129, block_size=16) == 2048
    with pytest.raises(ConfigError, match="max_model_len=2,040 needs 128 blocks"):
        resolve_max_model_len(2040, 2048, num_blocks=128, block_size=16)


def test_a_length_above_the_models_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"max_model_len=2,049 is above the 2,048 tokens"):
        resolve_max_model_len(2049, 2048, num_blocks=1000, block_size=16)


@pytest.mark.parametrize("requested", [None, "auto", -1, 1])
@pytest.mark.parametrize("num_blocks", [0, 1])
def test_a_pool_without_a_usable_block(requested: int | Literal["auto"] | None, num_blocks: int) -> None:
    with pytest.raises(ConfigError, match="holds no tokens: block 0 is the null block"):
        resolve_max_model_len(requested, 2048, num_blocks, 16)


@pytest.mark.parametrize("requested", [0, -2])
def test_a_length_that_is_none(requested: int) -> None:
    with pytest.raises(ConfigError, match=r"max_model_len must be an integer of at least 1, not"):
        resolve_max_model_len(requested, 2048, 100, 16)


@pytest.mark.parametrize(
    "shape", [(0, 1, 1, 1), (1, -1, 1, 1), (1, 1, True, 1), (1, 1, 1, 2.0)], ids=["0", "-1", "True", "2.0"]
)
def test_a_shape_that_is_none(shape: tuple[int, int, int, int]) -> None:
    with pytest.raises(ConfigError, match="must be an integer of at least 1"):
        KVShape(*shape)


def test_impossible_blocks() -> None:
    with pytest.raises(ConfigError):
        blocks_needed(1, 0)
    with pytest.raises(ConfigError):
        blocks_needed(-1, 16)
    with pytest.raises(ConfigError):
        bytes_per_block(OPT_13B, 0)


def test_sizes_need_no_torch() -> None:
    script = (
        "import minipaged.kv.size, minipaged.loading.known_models, minipaged.kv.prefix_hash, sys;"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
