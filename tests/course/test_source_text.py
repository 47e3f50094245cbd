"""Exercise files as editors save them: they are read as Python reads them, or there is a clear message."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from minipaged.course import checks, registry
from minipaged.course.implementation import Implementation, implementation
from minipaged.course.source_text import read_source
from tests.course.changed import CHAPTER, SOLVED

WITH_UMLAUT = SOLVED.replace("# a key and a value", "# clé et valeur")


def _saved(folder: Path, content: bytes) -> Implementation:
    (folder / f"{CHAPTER.stem}.py").write_bytes(content)
    return implementation(CHAPTER, str(folder))


@pytest.mark.parametrize(
    "content",
    [
        WITH_UMLAUT.encode(),
        codecs.BOM_UTF8 + WITH_UMLAUT.encode(),
        f"# -*- coding: latin-1 -*-\n{WITH_UMLAUT.replace('×', 'x')}".encode("latin-1", "replace"),
        f"# vim: set fileencoding=utf-8 :\n{WITH_UMLAUT}".encode(),
        codecs.BOM_UTF8 + f"# coding: utf-8\n{WITH_UMLAUT}".encode(),
        WITH_UMLAUT.replace("\n", "\r\n").encode(),
        codecs.BOM_UTF8 + WITH_UMLAUT.replace("\n", "\r\n").encode(),
        WITH_UMLAUT.replace("\n", "\r").encode(),
        WITH_UMLAUT.rstrip("\n").encode(),
        WITH_UMLAUT.replace("def account", "\f\ndef account").encode(),
    ],
    ids=[
        "utf-8",
        "mark",
        "latin-1",
        "coding",
        "mark and coding",
        "crlf",
        "mark and crlf",
        "cr",
        "no end",
        "feed",
    ],
)
def test_what_python_reads_is_read(tmp_path: Path, content: bytes) -> None:
    code = _saved(tmp_path, content)
    assert code.load().bytes_per_token(40, 40, 128, 2) == 819_200
    assert code.written() == {exercise.number for exercise in CHAPTER.exercises}
    line = int(code.where(registry.exercise("1.4")).rpartition(":")[2])
    assert code.source().split("\n")[line - 1].startswith("def account(")
    assert "# clé et valeur" in code.source()


@pytest.mark.parametrize(
    ("content", "said", "line"),
    [
        (SOLVED.encode("utf-16"), "the file is in UTF-16: save it as UTF-8", None),
        (codecs.BOM_UTF16_BE + SOLVED.encode("utf-16-be"), "the file is in UTF-16: save it as UTF-8", None),
        (SOLVED.encode("utf-32"), "the file is in UTF-32: save it as UTF-8", None),
        (SOLVED.encode("utf-16-le"), "the file has null bytes, as UTF-16 has: save it as UTF-8", None),
        (b"a = 1\n\n# caf\xe9\n", "line 3 is not UTF-8: save the file as UTF-8", 3),
        (b"# caf\xe9\n", "line 1 is not UTF-8: save the file as UTF-8", 1),
        (
            b"# coding: ascii\n# caf\xe9\n",
            "line 2 is not ascii, as its coding line says: save the file as UTF-8",
            2,
        ),
        (
            b"# coding: klingon\n",
            "unknown encoding: klingon: save the file as UTF-8, without a coding line",
            1,
        ),
        (
            codecs.BOM_UTF8 + b"# coding: latin-1\n",
            "encoding problem: utf-8: save the file as UTF-8, without a coding line",
            1,
        ),
    ],
)
def test_what_it_does_not_is_one_line(tmp_path: Path, content: bytes, said: str, line: int | None) -> None:
    code = _saved(tmp_path, content)
    for read in (lambda: read_source(code.path), code.load, code.written):
        with pytest.raises(SyntaxError) as raised:
            read()
        assert (raised.value.msg, raised.value.filename, raised.value.lineno) == (said, str(code.path), line)
    assert code.unwritten(registry.exercise("1.1")) == ()
    assert code.where(registry.exercise("1.1")).endswith(".py" if line is None else f".py:{line}")


def test_a_check_says_it_once(tmp_path: Path) -> None:
    code = _saved(tmp_path, SOLVED.encode("utf-16"))
    report = checks.check_numbered("1", str(tmp_path))
    assert {each.state for each in report.results} == {"wrong"}
    texts = {text for each in report.results for text in each.texts}
    assert texts == {
        f"wrong  {code.path}: nothing in it can be checked\n"
        "  raised    SyntaxError: the file is in UTF-16: save it as UTF-8"
    }
