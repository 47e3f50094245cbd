"""Which functions a failing test is about, and which earlier functions they need."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from minipaged.course import checks, folders, registry, stubs
from minipaged.course.blame import needed, to_blame
from minipaged.course.calls import Call
from minipaged.course.expect import Wrong
from minipaged.course.implementation import Implementation, implementation
from minipaged.course.messages import wrong_text
from minipaged.course.outcome import place_of
from tests.course.many_runs import run_pytest

CHAPTER = registry.chapter(3)
SOLVED = stubs.without_markers(folders.solution_text(CHAPTER))


def _implementation(folder: Path, text: str) -> Implementation:
    (folder / f"{CHAPTER.stem}.py").write_text(text, encoding="utf-8")
    return implementation(CHAPTER, str(folder))


def _changed(name: str, old: str, new: str) -> str:
    """The solution with a changed text in one function."""
    written = stubs.text_of(SOLVED, name)
    assert old in written
    return SOLVED.replace(written, written.replace(old, new))


def _unwritten(name: str) -> str:
    stub = stubs.make_stub(folders.solution_text(CHAPTER))
    text = SOLVED.replace(stubs.text_of(SOLVED, name), stubs.text_of(stub, name))
    return text.replace("from minipaged.kv", "from minipaged.course import NotYet\nfrom minipaged.kv", 1)


def _pytest(folder: Path, *arguments: str) -> str:
    code, said = run_pytest(CHAPTER, f"--impl={folder}", *arguments)
    assert code == pytest.ExitCode.TESTS_FAILED, said
    return said


# Which functions


@pytest.mark.parametrize(
    ("case", "blamed"),
    [
        ("gather(kv_layer, [3, 1], seq_len=7)", ("gather",)),
        ("write_kv of two tokens", ("write_kv",)),
        ("two tokens", ("write_kv", "gather")),
    ],
)
def test_the_function_of_the_case_is_blamed(tmp_path: Path, case: str, blamed: tuple[str, ...]) -> None:
    code, exercise = _implementation(tmp_path, SOLVED), registry.exercise("3.4")
    found = to_blame(exercise, code, Wrong(case=case))
    assert found == blamed
    heading = wrong_text(exercise, code, "a test", Wrong(case=case), blamed=found).splitlines()[0]
    assert heading.startswith(f"wrong  3.4 {', '.join(blamed)} (")
    assert (".py:" in heading) == (len(blamed) == 1)  # with several functions, no line is shown


def test_the_function_that_raised_is_blamed(tmp_path: Path) -> None:
    code = _implementation(tmp_path, _changed("grow", "    return True", "    return 1 / 0"))
    module = code.load()
    with pytest.raises(ZeroDivisionError) as caught:
        module.grow([], 1, 4, module.FreeList([1]))
    assert to_blame(registry.exercise("3.3"), code, caught.value) == ("grow",)


def test_a_marker_names_the_function_that_its_test_is_about(tmp_path: Path) -> None:
    code, exercise = _implementation(tmp_path, SOLVED), registry.exercise("3.3")
    error = Wrong(case="FreeList([7]): pop(), push(7), push(7)")
    assert to_blame(exercise, code, error) == ("FreeList.pop", "FreeList.push")
    assert to_blame(exercise, code, error, about=("FreeList.push",)) == ("FreeList.push",)


def test_the_last_call_is_blamed_where_a_test_could_not_go_on(tmp_path: Path) -> None:
    code = _implementation(tmp_path, SOLVED)
    call = Call(len, "FreeList.pop", (), {}, has_returned=True)
    assert to_blame(registry.exercise("3.3"), code, TypeError(), call) == ("FreeList.pop",)


def test_a_check_that_is_missing_in_push_is_push_s(tmp_path: Path) -> None:
    _implementation(tmp_path, _changed("FreeList.push", "if block_id in self._free", "if False"))
    shown = _pytest(tmp_path, "--exercise", "3.3", "-k", "freed_once")
    assert "wrong  3.3 FreeList.push (" in shown
    assert "expected  InvariantError" in shown


def test_a_marker_cannot_name_what_the_exercise_has_not() -> None:
    def item(*marked: str) -> pytest.Item:
        mark = SimpleNamespace(args=marked)
        return SimpleNamespace(  # pyright: ignore[reportReturnType]
            nodeid="test_x.py::test_x",
            path=folders.chapter_folder(CHAPTER) / "test_x.py",
            get_closest_marker=lambda name: mark if name == "exercise" else None,
        )

    assert place_of(item("3.3", "grow")) == (CHAPTER, registry.exercise("3.3"))
    with pytest.raises(pytest.UsageError, match=r"3\.3 has no shrink"):
        place_of(item("3.3", "shrink"))


# Which functions they need


def test_what_a_function_calls_is_found_through_others(tmp_path: Path) -> None:
    helped = SOLVED.replace("gather(kv_layer", "_collect(kv_layer").replace("def _collect(", "def gather(")
    helped += "\n\ndef _collect(*arguments):\n    return gather(*arguments)\n"
    for text in (SOLVED, helped):
        assert needed(registry.exercise("3.5"), _implementation(tmp_path, text)) == ("gather",)
    assert needed(registry.exercise("3.1"), _implementation(tmp_path, SOLVED)) == ()
    assert needed(registry.exercise("3.5"), _implementation(tmp_path, "def f(:\n")) == ()
    assert needed(registry.exercise("3.5"), implementation(CHAPTER, "engine")) == ()
    code = _implementation(tmp_path, SOLVED)
    assert needed(registry.exercise("3.5"), code, {"write_kv", "FreeList.pop"}) == (
        "FreeList",
        "write_kv",
        "gather",
    )


@pytest.mark.parametrize("command", ["check", "pytest"])
def test_a_bug_of_an_earlier_exercise_is_named(tmp_path: Path, command: str) -> None:
    _implementation(tmp_path, _changed("gather", "return keys, values", "return keys.flip(0), values"))
    if command == "pytest":
        shown = _pytest(tmp_path, "-k", "gathered_in_order or the_scale_counts")
        heading = next(line for line in shown.splitlines() if line.startswith("wrong  3.5"))
        shown = shown[shown.index(heading) :]
    else:
        report = checks.check_numbered("3.5", str(tmp_path))
        (result,) = report.results  # the tests of 3.4 have run, too, but are not shown
        assert result.exercise == registry.exercise("3.5")
        (shown,) = result.texts
    heading, first, *_ = shown.splitlines()
    assert heading.startswith("wrong  3.5 paged_attention (")
    assert first == "  first     `gather` (3.4) does not pass: begin there"


def test_a_bug_beside_the_one_that_is_needed_is_not_named(tmp_path: Path) -> None:
    text = _changed("paged_attention", "scale)", "2 * scale)")
    written = stubs.text_of(text, "write_kv")
    _implementation(tmp_path, text.replace(written, f"{written}\n    kv_layer.zero_()"))
    shown = _pytest(tmp_path, "-k", "its_slot or gathered or the_scale_counts")
    assert "wrong  3.4 write_kv (" in shown
    assert "wrong  3.5 paged_attention (" in shown
    assert "begin there" not in shown


def test_only_the_function_that_calls_a_missing_one_waits_for_it(tmp_path: Path) -> None:
    _implementation(tmp_path, _unwritten("gather"))
    lines = [line for line in _pytest(tmp_path, "--exercise", "3.5").splitlines() if line.startswith("todo")]
    assert lines == ["todo  3.5 paged_attention: waits for 3.4, gather, which it calls"]


# Without the solutions


def test_without_the_solutions_a_message_leaves_out_what_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = _implementation(tmp_path, SOLVED)
    call, exercise = Call(code.load().translate, "translate", (35, 16), {}), registry.exercise("3.1")
    whole = wrong_text(exercise, code, "a test", IndexError("no"), call=call)
    assert "expected  (2, 3)" in whole
    monkeypatch.setattr(folders, "solution_file", lambda chapter: tmp_path / "none.py")
    without = wrong_text(exercise, code, "a test", IndexError("no"), call=call)
    assert without == whole.replace("  expected  (2, 3)\n", "")
