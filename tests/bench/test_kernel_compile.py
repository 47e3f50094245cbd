"""Every kernel compiles for sm_80 and sm_90, fits on both chips, and widens block ids before it multiplies.

These tests use one head dimension; `minipaged bench kernel --compile-only` compiles for all of them.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

import pytest

pytest.importorskip("triton")

from minipaged.bench.kernel_resources import SHARED_MEMORY, Resources
from minipaged.triton_kernels.setup import INTERPRET
from minipaged.triton_kernels.split_rule import PROGRAMS_PER_MULTIPROCESSOR

ROOT = Path(__file__).parents[2]
COMPILED = {name: value for name, value in os.environ.items() if name != INTERPRET}
REGISTERS = 65_536  # of a multiprocessor, on both chips
KERNELS = ["write_kv", "copy_blocks", "decode", "decode_part", "merge", "prefill"]
TABLES = ("%block_tables", "%slot_mapping", "%copies")


class Row(TypedDict):
    kernel: str
    dtype: str
    capability: int
    group: int
    registers: int
    spill_bytes: int
    shared_bytes: int
    ttir: str


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """All kernels, dtypes and chips at head dimension 128."""
    return compiled("head-dim", "128")


def compiled(*arguments: str) -> list[Row]:
    """The rows that `compile_kernels` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.compile_kernels", *arguments],
        cwd=ROOT,
        env=COMPILED,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
def test_every_kernel_in_every_dtype_on_both_chips(rows: list[Row]) -> None:
    dtypes = ["torch.float16", "torch.bfloat16", "torch.float32"]
    compiled = [(row["kernel"], row["dtype"], row["capability"]) for row in rows]
    assert sorted(compiled) == sorted(itertools.product(KERNELS, dtypes, [80, 90]))


@pytest.mark.long
def test_every_size_of_group() -> None:
    """Any number of query heads may share a KV head, not only powers of two. On the smaller chip."""
    rows = compiled("groups", "1", "3", "4", "7", "8")
    cases = [(row["kernel"], row["group"]) for row in rows]
    assert sorted(cases) == sorted(itertools.product(["decode", "decode_part", "prefill"], [1, 3, 4, 7, 8]))
    for row in rows:
        assert row["spill_bytes"] == 0, row
        assert row["shared_bytes"] <= SHARED_MEMORY[80], row


@pytest.mark.long
def test_nothing_is_spilled(rows: list[Row]) -> None:
    for row in rows:
        assert row["spill_bytes"] == 0, row
        assert 0 < row["registers"] < 255, "255 is where spilling begins"


@pytest.mark.long
def test_shared_memory_suffices(rows: list[Row]) -> None:
    for row in rows:
        assert row["shared_bytes"] <= SHARED_MEMORY[row["capability"]], row
    assert max(row["shared_bytes"] for row in rows) > 0


@pytest.mark.long
def test_as_many_decodes_run_at_once_as_the_split_rule_takes_for_granted(rows: list[Row]) -> None:
    num_threads = 4 * 32
    reserved = 1024  # bytes of shared memory that each program costs in addition
    for row in rows:
        if row["kernel"].startswith("decode") and row["dtype"] != "torch.float32":
            available = SHARED_MEMORY[row["capability"]] + reserved
            assert available // (row["shared_bytes"] + reserved) >= PROGRAMS_PER_MULTIPROCESSOR
            assert REGISTERS // (num_threads * row["registers"]) >= PROGRAMS_PER_MULTIPROCESSOR


@pytest.mark.long
def test_float32_is_not_rounded_for_the_tensor_cores(rows: list[Row]) -> None:
    products = [code for row in rows for code in row["ttir"].splitlines() if "tt.dot" in code]
    assert len(products) >= 3 * 3 * 2 * 2, "two in each attention kernel"
    assert not [code for code in products if "tf32" in code]


@pytest.mark.long
@pytest.mark.parametrize("kernel", ["write_kv", "copy_blocks", "decode", "decode_part", "prefill"])
def test_ids_are_widened_before_they_are_multiplied(rows: list[Row], kernel: str) -> None:
    """A cache of more than 2³¹ numbers is too large for a test, so this test reads the compiled code."""
    for row in rows:
        if row["kernel"] == kernel:
            multiplications = with_an_id(row["ttir"])
            assert multiplications, "the kernel multiplies ids by strides"
            for code in multiplications:
                assert re.search(r"(i64|xi64>)$", code), code


def with_an_id(ttir: str) -> list[str]:
    """The multiplications of values that depend on ids loaded through one of `TABLES`."""
    depends: set[str] = set(TABLES)
    found: list[str] = []
    for raw in ttir.splitlines():
        code = re.sub(r"\s*loc\(.*", "", raw).strip()
        result, equals, operation = code.partition(" = ")
        if equals and depends & set(re.findall(r"%\w+", operation)):
            depends.add(result)
            if operation.startswith("arith.muli"):
                found.append(code)
    return found


def test_a_narrow_multiplication_would_be_found() -> None:
    ttir = """
        %ids = tt.load %at : tensor<64x!tt.ptr<i32>>
        %at2 = tt.addptr %block_tables, %i : !tt.ptr<i32>, i32 loc(#loc1)
        %ids2 = tt.load %at2, %inside : tensor<64x!tt.ptr<i32>> loc(#loc1)
        %wide = arith.extsi %ids2 : tensor<64xi32> to tensor<64xi64>
        %other = arith.muli %ids, %stride : tensor<64xi32>
        %bad = arith.muli %ids2, %stride : tensor<64xi32> loc(#loc2)
        %good = arith.muli %wide, %stride : tensor<64xi64>
    """
    assert with_an_id(ttir) == [
        "%bad = arith.muli %ids2, %stride : tensor<64xi32>",
        "%good = arith.muli %wide, %stride : tensor<64xi64>",
    ]


def test_the_command() -> None:
    command = "bench kernel --compile-only --head-dim 128 --dtype bfloat16"
    done = subprocess.run(
        [sys.executable, "-m", "minipaged", *command.split()],
        cwd=ROOT,
        env=COMPILED,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["kernel", "dtype", "head", "chip", "registers", "spilled", "shared", "memory"]
    for kernel, chip in itertools.product(KERNELS, ["sm_80", "sm_90"]):
        assert any(re.match(rf"{kernel} +bfloat16 +128 +{chip} +\d+ +0 +[\d,]+$", row) for row in lines)
    assert lines[-1] == "All fit, and nothing is spilled."


@pytest.mark.long
def test_interpreted_kernels_are_not_compiled() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "minipaged", "bench", "kernel", "--compile-only"],
        cwd=ROOT,
        env=COMPILED | {INTERPRET: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "start Python without TRITON_INTERPRET" in done.stderr


@pytest.mark.parametrize(
    ("spill_bytes", "shared_bytes", "capability", "fault"),
    [
        (0, 163 * 1024, 80, None),
        (0, 163 * 1024 + 1, 80, "needs more than 166,912 bytes"),
        (0, 163 * 1024 + 1, 90, None),
        (8, 0, 90, "spills"),
    ],
)
def test_faults(spill_bytes: int, shared_bytes: int, capability: int, fault: str | None) -> None:
    taken = Resources(registers=255, spill_bytes=spill_bytes, shared_bytes=shared_bytes, ttir="")
    assert taken.fault_on(capability) == fault
