"""The messages for readers: one line for todo, and a longer text for wrong."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from minipaged.course import NotYet, folders, registry, stubs
from minipaged.course.drawing import draw_slots, draw_tables
from minipaged.course.expect import Wrong, expect, expect_close, expect_equal, expect_error, kind_of, show
from minipaged.course.implementation import Implementation, implementation
from minipaged.course.messages import todo_line
from tests.course.many_runs import run_pytest

CHAPTER = registry.chapter(1)
SOURCE = folders.solution_file(CHAPTER).read_text(encoding="utf-8")


def _pytest(folder: Path, text: str, *arguments: str) -> str:
    """What `pytest chapters/01` prints for an exercise file with this text."""
    (folder / f"{CHAPTER.stem}.py").write_text(text, encoding="utf-8")
    code, said = run_pytest(CHAPTER, f"--impl={folder}", *arguments)
    assert code == pytest.ExitCode.TESTS_FAILED, said
    return said


def test_todo_is_one_line_for_each_exercise(tmp_path: Path) -> None:
    shown = _pytest(tmp_path, stubs.make_stub(SOURCE, keep={"1.1"}), "--exercise", "1.2")
    lines = [line for line in shown.splitlines() if line.startswith("todo")]
    assert len(lines) == 1
    for part in ("1.2 num_blocks_that_fit", "ch01_kv_size.py:", "How many blocks fit", "minipaged hint 1.2"):
        assert part in lines[0]
    assert "Traceback" not in shown
    assert "NotYet" not in shown


def test_wrong_says_what_was_expected_what_came_and_what_is_smallest(tmp_path: Path) -> None:
    broken = stubs.without_markers(SOURCE).replace("num_slots - held", "num_slots - at_end")
    shown = _pytest(tmp_path, broken, "--exercise", "1.4", "-k", "every_slot or figure_3")
    for part in (
        "wrong  1.4 account",
        "case      external_fragmentation of 2 regions in 2,600 slots",
        "expected  40",
        "got       2,585",
        "rule      ",
        "state     |",
        "Three kinds of waste",
        "minipaged hint 1.4",
        "also wrong test_every_slot_counts_once",
    ):
        assert part in shown, shown
    shown = _pytest(tmp_path, broken, "--exercise", "1.4", "-k", "every_slot")
    assert "smallest  runs=[(0, 0, 1)]\n            gap=0" in shown


def test_an_error_shows_the_reader_s_own_line(tmp_path: Path) -> None:
    broken = stubs.without_markers(SOURCE).replace(
        "return num_blocks / blocks_per_request",
        'print("here", num_blocks)\n    return num_blocks / (blocks_per_request - blocks_per_request)',
    )
    shown = _pytest(tmp_path, broken, "--exercise", "1.3")
    assert "raised    ZeroDivisionError" in shown
    assert "return num_blocks / (blocks_per_request - blocks_per_request)" in shown
    assert "printed   here" in shown
    assert "site-packages" not in shown


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    shown = _pytest(tmp_path, "def f(:\n", "--exercise", "1.1")
    assert "raised    SyntaxError" in shown
    assert "ch01_kv_size.py:1" in shown


def test_an_exercise_that_needs_an_earlier_one_waits(tmp_path: Path) -> None:
    waiting = stubs.make_stub(SOURCE, keep={"1.3"}).replace(
        "return num_blocks / blocks_per_request", "return max_model_len_that_fits(num_blocks, block_size)"
    )
    shown = _pytest(tmp_path, waiting, "--exercise", "1.3", "-k", "greatest")
    assert "todo  1.3 max_concurrency: waits for 1.2, max_model_len_that_fits, which it calls" in shown


def test_a_loop_without_end_is_wrong(tmp_path: Path) -> None:
    endless = stubs.without_markers(SOURCE).replace(
        "fitting = min(num_slots // max_model_len, len(tokens_now))", "while True:\n        pass"
    )
    shown = _pytest(
        tmp_path, endless, "--exercise", "1.5", "-k", "test_contiguous and tokens0", "--test-seconds", "1"
    )
    assert "stopped   it had not ended after 1 second\n" in shown
    assert re.search(r"  at  .*ch01_kv_size\.py:[0-9]+: (while True:|pass)\n", shown)


def test_the_report_is_a_table(tmp_path: Path) -> None:
    text = stubs.make_stub(SOURCE, keep={"1.1"})
    shown = _pytest(tmp_path, text, "--chapter-report", "-k", "greatest or twelve or SmolLM2")
    assert "✓  1.1  bytes that one token takes" in shown
    assert "·  1.3" in shown


def _implementation(folder: Path, text: str) -> Implementation:
    (folder / f"{CHAPTER.stem}.py").write_text(text, encoding="utf-8")
    return implementation(CHAPTER, str(folder))


def test_todo_names_only_what_is_to_do(tmp_path: Path) -> None:
    whole, stub = stubs.without_markers(SOURCE), stubs.make_stub(SOURCE)
    written = stubs.text_of(whole, "max_concurrency")
    code = _implementation(tmp_path, stub.replace(stubs.text_of(stub, "max_concurrency"), written))
    line = todo_line(registry.exercise("1.3"), code, NotYet("1.3", "average_concurrency"))
    assert line.startswith("todo  1.3 average_concurrency (")


# The parts


def test_expect_equal_sees_more_than_equality() -> None:
    expect_equal([1, 2], [1, 2], case="same")
    for got, expected in ((1.0, 1), (True, 1), ([1.0], [1]), ((1,), [1]), (None, 0)):
        with pytest.raises(Wrong):
            expect_equal(got, expected, case="not the same")


def test_the_other_expectations() -> None:
    expect_close(1 + 1e-12, 1.0, case="close")
    expect(True, case="", rule="")
    with expect_error(ValueError, case="raises"):
        raise ValueError
    with pytest.raises(Wrong, match="a case"):
        expect_close(float("nan"), 1.0, case="a case")
    with pytest.raises(Wrong):
        expect_close(None, 1.0, case="a case")  # pyright: ignore[reportArgumentType]
    with pytest.raises(Wrong):
        expect(False, case="a case", rule="a rule")
    with pytest.raises(Wrong), expect_error(ValueError, case="a case"):
        pass


def test_values_are_shown_short() -> None:
    assert show(819_200) == "819,200"
    assert show([1, 2.5, None]) == "[1, 2.5, None]"
    assert show((1,)) == "(1,)"
    assert len(show("x" * 10_000)) < 700


def test_an_answer_of_the_wrong_kind_is_said_in_words() -> None:
    assert kind_of(np.zeros(2)) == "a NumPy array of float64"
    assert kind_of(torch.zeros(2)) == "a tensor of float32"
    assert kind_of((1, 2, 3)) == "a tuple of 3"
    assert kind_of([]) == "a list of 0"
    assert kind_of(None) == "None"
    assert kind_of(7) == "int: 7"


def test_a_count_that_is_not_the_number_of_tables_is_marked() -> None:
    drawn = draw_tables({"A": [7, 1], "B": [7, 3]}, {7: 2, 1: 2, 3: 1}).splitlines()
    assert drawn[-1].strip() == "^"
    assert drawn[-1].index("^") == drawn[-4].index("1")  # the mark is under block 1
    assert "^" not in draw_tables({"A": [7, 1], "B": [7, 3]}, {7: 2, 1: 1, 3: 1})
    assert "free   4   5" in draw_tables({"A": [1]}, [1, 1], free=[4, 5])


def test_a_bar_has_its_width_whatever_the_slots() -> None:
    bar, legend = draw_slots([("A", 1), ("B", 2)], 1000, width=10).splitlines()
    assert len(bar) == 12
    assert ". 997" in legend
