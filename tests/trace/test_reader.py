"""Trace files are read as they were written, or as far as they go; a change is caught."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import minipaged.trace
from minipaged import LLM, SamplingParams
from minipaged.errors import TraceError
from minipaged.events import EngineStarted, Event, StepFinished, TokenSampled
from minipaged.loading.loader import LoadedModel
from minipaged.trace.codec import decode, encode
from minipaged.trace.trace import Trace
from minipaged.trace.writer import TraceWriter
from tests.engine.test_histories import live_one_history


def record(model: LoadedModel, seed: int, path: Path) -> list[Event]:
    """Write the trace of a random history, and return its events."""
    events: list[Event] = []
    with TraceWriter(path) as writer:

        def observe(event: Event) -> None:
            events.append(event)
            writer(event)

        live_one_history(model, seed, observe, lambda engine: None)
    return events


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_what_was_written_is_read(nano_model: LoadedModel, tmp_path: Path, name: str) -> None:
    for seed in range(15):
        events = record(nano_model, seed, tmp_path / name)
        trace = Trace.read(tmp_path / name)
        assert [trace.engine, *trace.events] == events
        assert trace.note is None
        trace.check()


def test_any_change_of_a_file_is_caught(nano_model: LoadedModel, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(nano_model, 7, path)
    lines = path.read_bytes().splitlines(keepends=True)
    for i in range(1, len(lines) - 1):
        others = [
            [*lines[:i], *lines[i + 1 :]],
            [*lines[:i], lines[i], *lines[i:]],
            [*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]],
        ]
        digit = re.search(rb"\d", lines[i][30:])
        assert digit is not None
        at = 30 + digit.start()
        changed = b"%d" % ((int(digit.group()) + 1) % 10)
        others.append([*lines[:i], lines[i][:at] + changed + lines[i][at + 1 :], *lines[i + 1 :]])
        for other in others:
            path.write_bytes(b"".join(other))
            assert is_refused(path), i


def is_refused(path: Path) -> bool:
    try:
        Trace.read(path).check()
    except TraceError:
        return True
    return False


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_file_that_ends_anywhere_is_read_up_to_its_last_whole_line(
    nano_model: LoadedModel, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    events = record(nano_model, 12, path)
    content = path.read_bytes()
    header = len(gzip.decompress(content).splitlines()[0]) if name.endswith("gz") else content.index(b"\n")
    read = 0
    for end in range(header + 200, len(content) - 24, 31):  # the last bytes of gzip hold no text
        path.write_bytes(content[:end])
        trace = Trace.read(path)
        assert trace.note is not None
        assert list(trace.events) == events[1 : 1 + len(trace.events)]
        assert len(trace.events) >= read
        read = len(trace.events)
        trace.check()
    assert read > 10


KILLED = """
import sys
from minipaged import LLMEngine, EngineConfig, SamplingParams
from minipaged.trace.writer import TraceWriter

config = EngineConfig("tiny", attention_backend="reference", num_blocks=40, max_model_len=400)
engine = LLMEngine(config, observer=TraceWriter(sys.argv[1]))
engine.add_request("a", "Once upon a time", SamplingParams(max_tokens=300, ignore_eos=True))
while engine.has_unfinished_requests():
    engine.step()
    print(engine.stats().num_steps, flush=True)
"""


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_process_that_is_killed_leaves_its_steps(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 5:
            pass
        process.send_signal(signal.SIGKILL)
        told = [5, *map(int, process.stdout.read().split())]
    trace = Trace.read(path)
    assert trace.num_steps >= max(told)
    assert trace.note is not None
    assert "killed" in trace.note
    trace.check()
    assert trace.at(5).running == ("a",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no whole line"),
        (b"hello\n", "is no trace"),
        (b'{"schema":"other","version":1}\n', "is no trace"),
        (b'{"schema":"minipaged-trace","version":2}\n', "has version 2"),
        (b'{"schema":"minipaged-trace","version":1,"engine":{"event":"BlocksTaken"}}\n', "has the fields"),
        (b"\x1f\x8bnot gzip at all", "cannot be decompressed"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message):
        Trace.read(path)


def test_a_missing_file_and_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        Trace.read(tmp_path / "run.jsonl")
    with pytest.raises(TraceError, match="cannot write"):
        TraceWriter(tmp_path / "nowhere" / "run.jsonl")


def test_texts_can_be_left_out(tmp_path: Path) -> None:
    prompt, path = "Once upon a time", tmp_path / "run.jsonl"
    with TraceWriter(path, texts=False) as writer:
        llm = LLM("tiny", observer=writer, num_blocks=10, max_model_len=64, attention_backend="reference")
        [output] = llm.generate([prompt], SamplingParams(max_tokens=8), use_tqdm=False)
    content = path.read_text()
    assert "Once" not in content
    assert '"texts":[' not in content
    trace = Trace.read(path)
    trace.check()
    [seq] = trace.final().sequences.values()
    assert seq.token_ids == (*output.prompt_token_ids, *output.outputs[0].token_ids)
    assert seq.text == ""


def test_texts_are_those_of_the_outputs(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    with TraceWriter(path, title="stories") as writer:
        llm = LLM("tiny", observer=writer, num_blocks=40, max_model_len=64, attention_backend="reference")
        params = SamplingParams(n=2, seed=1, temperature=1.5, max_tokens=30, stop=["the"])
        outputs = llm.generate(["Once upon a time", "</script> \u202e \U0001f600"], params, use_tqdm=False)
    trace = Trace.read(path)
    trace.check()
    assert trace.title == "stories"
    state = trace.final()
    for output, request in zip(outputs, state.requests, strict=True):
        texts = [state.sequences[seq_id].text for seq_id in request.seq_ids]
        assert texts == [sample.text for sample in output.outputs]


FORMAT = (Path(minipaged.trace.__file__).parent / "FORMAT.md").read_text()


def test_the_format_s_page_shows_each_event() -> None:
    objects = [json.loads(each) for each in re.findall(r"```json\n(.*?)\n```", FORMAT, re.DOTALL)]
    header, batch, closed, *shown = objects
    assert isinstance(decode([header["engine"]])[0], EngineStarted)
    assert decode(batch["events"])
    assert closed == {"crc": "0c1f53a1", "events": [], "closed": True}
    names = {type(event).__name__ for event in decode(shown)} | {"EngineStarted"}
    assert names == {each.__name__ for each in Event.__args__}
    assert json.loads(json.dumps(encode(decode(shown)))) == shown


def test_a_run_of_tokens_is_one_object() -> None:
    tokens: list[Event] = [TokenSampled(1, 5, "a"), TokenSampled(2, 6, "b")]
    finished = StepFinished(1, 0.5, 1, 0, 0, 3)
    encoded = encode([*tokens, finished, *tokens])
    assert [each["event"] for each in encoded] == ["TokensSampled", "StepFinished", "TokensSampled"]
    assert decode(json.loads(json.dumps(encoded))) == [*tokens, finished, *tokens]


@pytest.mark.parametrize(
    "encoded",
    [
        "no list",
        ["no object"],
        [{"event": "Nothing"}],
        [{"event": "RegionFreed"}],
        [{"event": "RegionFreed", "start": "1"}],
        [{"event": "RegionFreed", "start": True}],
        [{"event": "RegionFreed", "start": 1, "end": 2}],
        [{"event": "BlocksTaken", "seq_id": 1, "block_ids": 3}],
        [{"event": "SequenceFinished", "seq_id": 1, "finish_reason": "tired", "stop_reason": None}],
        [{"event": "TokensSampled", "seq_ids": [1], "token_ids": [1, 2]}],
    ],
)
def test_an_event_of_another_form_is_refused(encoded: object) -> None:
    with pytest.raises(TraceError):
        decode(encoded)


def test_a_second_engine_does_not_write_into_the_same_trace(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    started = EngineStarted(
        "m",
        None,
        "paged",
        4,
        9,
        0,
        8,
        4,
        8,
        True,
        True,
        "fcfs",
        "recompute",
        "continuous",
        "share",
        "max",
        "first_fit",
    )
    writer = TraceWriter(path)
    writer(started)
    with pytest.raises(TraceError, match="another engine"):
        writer(started)
    writer.close()
    writer.close()
    with pytest.raises(TraceError, match="closed"):
        writer(StepFinished(1, 0.5, 0, 0, 0, 8))


def test_the_checksum_is_what_the_format_says(nano_model: LoadedModel, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(nano_model, 2, path)
    header, *lines = path.read_bytes().splitlines()
    crc = zlib.crc32(header)
    for line in lines:
        crc = zlib.crc32(line[18:], crc)
        assert json.loads(line)["crc"] == f"{crc:08x}"
