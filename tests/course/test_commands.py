"""The commands of the course, on exercise files in temporary folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from minipaged.cli import check as check_command
from minipaged.cli import main as cli
from minipaged.cli import questions
from minipaged.course import checks, folders, progress, registry, stubs
from minipaged.course.chapter import Chapter
from minipaged.course.generate import stub_of
from minipaged.course.results import TestResult
from tests.course.changed import CHAPTER, SOLVED


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's file, untouched. No results are kept, and no tests are run."""
    return _file_of(CHAPTER, tmp_path, monkeypatch)


def _file_of(chapter: Chapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / f"{chapter.stem}.py"
    path.write_text(stub_of(chapter), encoding="utf-8")
    monkeypatch.setattr(folders, "exercise_file", lambda chapter: path)
    monkeypatch.setattr(folders, "state_folder", lambda: tmp_path / "state")

    def run_tests(chapters: object, look: object) -> list[TestResult]:
        missing = stubs.unwritten(path.read_text(encoding="utf-8"))
        return [
            TestResult(chapter.number, e.number, "t", 1, "todo" if e.number in missing else "pass", "")
            for e in chapter.exercises
        ]

    monkeypatch.setattr(progress, "run_tests", run_tests)
    monkeypatch.setattr(registry, "chapters", lambda: (chapter,))
    return path


def _solve(path: Path, *numbers: str, chapter: Chapter = CHAPTER) -> None:
    source = folders.solution_file(chapter).read_text(encoding="utf-8")
    path.write_text(stubs.make_stub(source, numbers), encoding="utf-8")


def test_hints_come_one_after_the_other(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for level in (1, 2, 3, 3):
        assert cli.main(["hint", "1.1"]) == 0
        assert f"hint {level} of 3" in capsys.readouterr().out
    assert cli.main(["hint", "1.1", "--level", "1"]) == 0
    assert "hint 1 of 3" in capsys.readouterr().out
    assert cli.main(["hint", "1.2"]) == 0
    assert "hint 1 of 3" in capsys.readouterr().out


def test_next_is_the_first_that_does_not_pass(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _solve(mine, "1.1", "1.2", "1.4")
    assert cli.main(["next"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1.3  ")
    assert "def max_concurrency(" in shown
    _solve(mine, *(exercise.number for exercise in CHAPTER.exercises))
    assert cli.main(["next"]) == 0
    assert "Everything" in capsys.readouterr().out
    assert cli.main(["next", "1"]) == 0
    assert "All of chapter 1 passes" in capsys.readouterr().out
    assert cli.main(["next", "77"]) != 0


def test_next_shows_methods_in_their_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chapter = registry.chapter(3)
    _solve(_file_of(chapter, tmp_path, monkeypatch), "3.1", "3.2", chapter=chapter)
    assert cli.main(["next"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("3.3  ")
    for line in ("class FreeList:", "    def pop(", "def grow("):
        assert shown.count(f"\n{line}") == 1


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("content", "place"),
    [
        (
            SOLVED.replace("return numbers_per_layer", "return (numbers_per_layer").encode(),
            ".py:29: return (",
        ),
        (f"{SOLVED}\nX = missing\n".encode(), ": X = missing"),
        (SOLVED.encode("utf-16"), "UTF-16"),
    ],
    ids=["a bracket", "a name", "an encoding"],
)
def test_next_says_what_check_says_of_a_file_that_cannot_be_used(
    mine: Path,
    content: bytes,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine.write_bytes(content)
    monkeypatch.setattr(
        progress, "run_tests", lambda chapters, look: checks.run_tests(chapters, str(mine.parent), "1.1")
    )
    assert cli.main(["check", "1.1", "--impl", str(mine.parent)]) == 1
    table, _, said = capsys.readouterr().out.partition("\n\n")
    assert "1.1" in table
    said = "".join(said.split())  # the console may wrap lines anywhere
    assert "".join(place.split()) in said
    assert cli.main(["next"]) == 0
    assert said in "".join(capsys.readouterr().out.split())


def test_next_goes_on_without_a_function_that_is_not_there(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stub = stub_of(CHAPTER)
    stub = stub.replace(stubs.text_of(stub, "bytes_per_token"), stubs.text_of(SOLVED, "bytes_per_token"))
    mine.write_text(stub.replace(stubs.text_of(stub, "max_model_len_that_fits"), ""), encoding="utf-8")
    assert cli.main(["next"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1.2  ")
    assert "def num_blocks_that_fit(" in shown


def test_where_nothing_can_be_written_the_results_are_shown(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a file"
    file.touch()
    monkeypatch.setattr(folders, "state_folder", lambda: file / "state")  # the folder cannot be made
    monkeypatch.setattr(checks, "run_tests", lambda *_, **__: progress.run_tests([CHAPTER], look=None))
    _solve(mine, "1.1")
    for arguments, code, shown in (
        (["check", "1"], 1, "✓  1.1"),
        (["progress"], 0, "1 of 5 pass"),
        (["next"], 0, "1.2  "),
        (["solution", "1.1"], 0, "numbers_per_layer = "),
        (["hint", "1.1"], 0, "hint 1 of 3"),
    ):
        assert cli.main(arguments) == code
        captured = capsys.readouterr()
        assert shown in captured.out, arguments
        remarks = [line for line in captured.err.splitlines() if str(file) in line]
        assert len(remarks) == 1, (arguments, captured.err)


def test_progress_draws_everything(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _solve(mine, "1.1")
    assert cli.main(["progress"]) == 0
    shown = capsys.readouterr().out
    assert "1 of 5 pass" in shown
    for exercise in CHAPTER.exercises:
        assert exercise.title in shown


def test_reset_keeps_the_reader_s_file(
    mine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["reset", "1.2"])
    assert "a whole chapter" in capsys.readouterr().err
    assert cli.main(["reset", "1"]) == 0
    assert "untouched" in capsys.readouterr().out
    for content in (stub_of(CHAPTER).replace("\n", "\r\n").encode(), stub_of(CHAPTER).encode("utf-8-sig")):
        mine.write_bytes(content)
        assert cli.main(["reset", "1"]) == 0
        assert "untouched" in capsys.readouterr().out
    for number in (1, 2):
        mine.write_text(f"mine {number}", encoding=("utf-8", "utf-16")[number - 1])
        assert cli.main(["reset", "1", "--yes"]) == 0
        assert mine.read_text(encoding="utf-8") == stub_of(CHAPTER)
        kept = mine.with_name(f"{mine.stem}.kept{number}.py")
        assert kept.read_text(encoding=("utf-8", "utf-16")[number - 1]) == f"mine {number}"
    mine.write_text("mine 3")
    assert cli.main(["reset", "1"]) == 2  # there is no user to ask
    assert "--yes" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "n")
    assert cli.main(["reset", "1"]) == 1
    assert mine.read_text() == "mine 3"


def test_a_solution_is_shown_at_once_only_to_who_has_one(
    mine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _solve(mine, "1.1")
    assert cli.main(["solution", "1.1"]) == 0
    shown = capsys.readouterr().out
    assert "numbers_per_layer = " in shown
    assert "SOLUTION" not in shown
    assert cli.main(["solution", "1.2"]) == 2
    assert "not solved yet" in capsys.readouterr().err
    asked: list[str] = []

    def confirmed(question: str, *, yes: bool) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr("minipaged.cli.solution.confirmed", confirmed)
    assert cli.main(["solution", "1.2"]) == 1
    assert "kv_cache_bytes" not in capsys.readouterr().out
    assert len(asked) == 1
    assert cli.main(["solution", "1.2", "--yes"]) == 0
    assert "kv_cache_bytes" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "9"],
        ["check", "1.9"],
        ["check", "one"],
        ["check", "1", "--impl", "nowhere"],
        ["hint", "1"],
        ["hint", "1.9"],
        ["reset", "9"],
        ["solution", "1.9"],
    ],
)
def test_bad_input_is_one_line(mine: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1


def test_check_shows_the_states_and_its_code_is_whether_all_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", "1.1", "--impl", "solutions"]) == 0
    assert "✓  1.1" in capsys.readouterr().out
    (tmp_path / f"{CHAPTER.stem}.py").write_text(stub_of(CHAPTER), encoding="utf-8")
    assert cli.main(["check", "1.1", "--impl", str(tmp_path)]) == 1
    assert "minipaged hint 1.1" in " ".join(capsys.readouterr().out.split())


def test_watch_checks_again_when_the_file_was_saved(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def check(number: str, impl: str | None, *, warm: bool) -> bool:
        assert warm  # the next check should not import everything again
        seen.append(mine.read_text(encoding="utf-8")[-6:])
        return False

    def wait(seconds: float) -> None:
        if len(seen) == 2:
            raise KeyboardInterrupt
        mine.write_text("saved anew")

    monkeypatch.setattr(check_command, "_check", check)
    monkeypatch.setattr(check_command.time, "sleep", wait)
    assert cli.main(["check", "1", "--watch"]) == cli.EXIT_INTERRUPTED
    assert len(seen) == 2
    assert seen[1] == "d anew"


@pytest.mark.parametrize(("answer", "expected"), [("y", True), ("Yes ", True), ("", False), ("no", False)])
def test_only_yes_is_yes(answer: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    assert questions.confirmed("Really?", yes=False) is expected
