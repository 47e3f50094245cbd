"""Every kernel compiles for every GPU, fits there without spilling, and loads tiles ahead.

Here some cases are compiled, and with `--long` many for each GPU. `minipaged bench kernel --compile-only`
compiles all.
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

from minipaged.bench.kernel_resources import TARGETS, Compiled
from minipaged.triton_kernels.gpu import Resources
from minipaged.triton_kernels.setup import INTERPRET

ROOT = Path(__file__).parents[2]
COMPILED = {name: value for name, value in os.environ.items() if name != INTERPRET}
KERNELS = ["write_kv", "copy_blocks", "decode", "decode_part", "merge", "prefill"]
LOADS_PER_TILE = 2  # keys and values
NOT_AHEAD = ("sm_75", "gfx942")
"""They have no instruction for loads in the background, or one that is not read here."""
TABLES = ("%block_tables", "%slot_mapping", "%copies")


class Row(TypedDict):
    kernel: str
    target: str
    dtype: str
    head_dim: int
    group: int
    block_size: int
    fault: str | None
    spill_bytes: int
    tile_bytes: int | None
    waits: list[int]
    ttir: str
    registers: int
    shared_bytes: int


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Every kernel in float32, and every way in which GPUs multiply half precision."""
    return compiled("few")


def compiled(what: str) -> list[Row]:
    """The rows that `compile_kernels` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.compile_kernels", what],
        cwd=ROOT,
        env=COMPILED,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_resources(row: Row) -> None:
    what = {name: value for name, value in row.items() if name != "ttir"}
    assert row["fault"] is None, what
    assert row["spill_bytes"] == 0, what
    assert row["registers"] > 0, what
    assert row["shared_bytes"] <= TARGETS[row["target"]].program_bytes, what
    if row["tile_bytes"] is not None:  # what an engine is refused by
        assert 0 < row["shared_bytes"] <= row["tile_bytes"], what


def check_overlap(row: Row) -> None:
    """After each wait in the loop over tiles, the loads of the next tile may still be in flight."""
    if row["tile_bytes"] is not None and row["target"] not in NOT_AHEAD:
        assert row["waits"], "the loop waits for its loads"
        assert min(row["waits"]) >= LOADS_PER_TILE, (row["kernel"], row["target"], row["waits"])


def test_resources(rows: list[Row]) -> None:
    assert {row["kernel"] for row in rows} == set(KERNELS)
    for row in rows:
        check_resources(row)


def test_the_next_tile_is_loaded_while_one_is_multiplied(rows: list[Row]) -> None:
    assert {row["target"] for row in rows if row["waits"]} == {"sm_80", "sm_90", "sm_100", "sm_120"}
    for row in rows:
        check_overlap(row)


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_all_models_on_all_gpus(target: str) -> None:
    rows = compiled(target)
    attention = [row for row in rows if row["tile_bytes"] is not None]
    for names, number in (
        (("kernel", "dtype"), 9),
        (("head_dim", "group"), 40),
        (("group", "block_size"), 32),
        (("dtype", "head_dim"), 15),
    ):
        assert len({tuple(row[name] for name in names) for row in attention}) == number
    for row in rows:
        check_resources(row)
        check_overlap(row)


def test_waits_are_read_from_loops_alone() -> None:
    ttgir = """
    %7 = ttg.async_wait {num = 9 : i32} loc(#loc1)
    %8:2 = scf.for %i = %a to %b step %c iter_args(%x = %y) -> (i32) : i32 {
      %9 = ttg.async_wait %5, %6 {num = 2 : i32} loc(#loc2)
      %10 = scf.if %z -> (i32) {
        %11 = ttg.async_wait %5 {num = 12 : i32} loc(#loc2)
      } else {
      }
      scf.yield %x : i32
    } loc(#loc3)
    %12 = ttg.async_wait {num = 0 : i32} loc(#loc1)
    """
    assert Compiled(Resources(128, 64, 0), 0, "", ttgir).waits == [2, 12]


def test_float32_is_not_rounded_for_the_tensor_cores(rows: list[Row]) -> None:
    products = [code for row in rows for code in row["ttir"].splitlines() if "tt.dot" in code]
    assert len(products) >= 2 * 3, "two in each attention kernel"
    assert not [code for code in products if "tf32" in code]


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
        if equals and operation.startswith("scf.for"):  # values that a loop hands to its next step
            depends |= {
                inner for inner, outer in re.findall(r"(%\w+) = (%\w+)", operation) if outer in depends
            }
        elif equals and depends & set(re.findall(r"%\w+", operation)):
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
        %9:2 = scf.for %i = %a to %b step %c iter_args(%sum = %other, %kept = %ids2) -> (i32, i32) : i32 {
        %in_loop = arith.muli %kept, %stride : tensor<64xi32>
        %in_loop2 = arith.muli %sum, %stride : tensor<64xi32>
        %bad = arith.muli %ids2, %stride : tensor<64xi32> loc(#loc2)
        %good = arith.muli %wide, %stride : tensor<64xi64>
    """
    assert with_an_id(ttir) == [
        "%in_loop = arith.muli %kept, %stride : tensor<64xi32>",
        "%bad = arith.muli %ids2, %stride : tensor<64xi32>",
        "%good = arith.muli %wide, %stride : tensor<64xi64>",
    ]


def test_the_command() -> None:
    """On a T4, where half precision is multiplied in float32, and on an H100."""
    command = "bench kernel --compile-only --head-dim 128 --dtype float16 --target sm_75 sm_90"
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
    names = "kernel dtype head group block GPU registers spilled shared limit at once"
    assert lines[0].split() == names.split()
    for kernel, (gpu, limit) in itertools.product(KERNELS, [("sm_75", "65,536"), ("sm_90", "232,448")]):
        pattern = rf"{kernel} +float16 +128 +4 +16 +{gpu} +\d+ +0 +[\d,]+ +{limit} +\d+$"
        assert any(re.match(pattern, row) for row in lines), pattern
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
    ("spill_bytes", "shared_bytes", "target", "fault"),
    [
        (0, 64 * 1024, "sm_75", None),
        (0, 64 * 1024 + 1, "sm_75", "does not fit"),
        (0, 64 * 1024 + 1, "sm_80", None),
        (8, 0, "sm_90", "spills"),
    ],
)
def test_faults(spill_bytes: int, shared_bytes: int, target: str, fault: str | None) -> None:
    taken = Compiled(Resources(128, 255, shared_bytes), spill_bytes, ttir="", ttgir="")
    assert taken.fault_on(TARGETS[target]) == fault
