"""`minipaged replay`: from trace files to a page."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest

from minipaged.cli.main import main
from minipaged.trace.writer import TraceWriter
from tests.trace.page.test_build import trace_of


def write(path: Path, *, closed: bool = True) -> Path:
    trace = trace_of("sea")
    writer = TraceWriter(path, title="one & two")
    for event in (trace.engine, *trace.events):
        writer(event)
    if closed:
        writer.close()
    return path


def test_a_page_is_written_beside_the_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = write(tmp_path / "run.jsonl.gz")
    assert main(["replay", str(trace)]) == 0
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "<title>one &amp; two: minipaged replay</title>" in page
    assert "run.html: 1 step" in capsys.readouterr().out


def test_two_traces_make_one_page(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one.jsonl"), write(tmp_path / "two.jsonl")
    out = tmp_path / "both.html"
    assert main(["replay", str(one), str(two), "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8").count('class="trace">') == 2


def test_a_trace_without_an_end_is_replayed_with_a_remark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write(tmp_path / "run.jsonl", closed=False)
    assert main(["replay", str(trace)]) == 0
    assert "its process was killed" in capsys.readouterr().err
    assert "its process was killed" in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_open_opens_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    trace = write(tmp_path / "a run.jsonl")
    assert main(["replay", str(trace), "--open"]) == 0
    assert opened == [(tmp_path / "a run.html").as_uri()]


@pytest.mark.parametrize("name", ["missing.jsonl", "no trace.jsonl"])
def test_what_is_no_trace_is_refused_in_one_line(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no trace.jsonl").write_text("hello\n")
    assert main(["replay", str(tmp_path / name)]) == 2
    assert name in capsys.readouterr().err
    assert not list(tmp_path.glob("*.html"))


def test_a_trace_is_never_replaced_by_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = write(tmp_path / "run.jsonl")
    before = trace.read_bytes()
    other = tmp_path / "link.html"
    other.symlink_to(trace)
    for page in (trace, tmp_path / ".." / tmp_path.name / trace.name, other):
        assert main(["replay", str(trace), "--out", str(page)]) == 2
        assert "would replace the trace" in capsys.readouterr().err
    assert trace.read_bytes() == before
