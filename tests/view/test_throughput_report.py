"""The tables of the throughput benchmark."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from minipaged.bench.throughput.contestants import OURS
from minipaged.bench.throughput.results import (
    Agreement,
    ContestantRecord,
    Entry,
    Run,
    ThroughputResult,
    WorkloadResult,
)
from minipaged.view.throughput_report import throughput_report


def entry(name: str, *seconds: float, failure: str | None = None, differing: int = 0) -> Entry:
    runs = tuple(Run(each, 1000, None, 500.4, {}) for each in seconds)
    first = (3, 17) if differing else None
    agreement = None if name == OURS or not runs else Agreement(32, differing, first)
    return Entry(name, runs, failure, agreement)


WORKLOAD = WorkloadResult(
    name="W2",
    description="32 requests of mixed lengths, at once",
    num_requests=32,
    num_prompt_tokens=2000,
    num_output_tokens=1000,
    bound=250.0,
    entries=(
        entry(OURS, 5.0, 4.0, 8.0),
        entry("hf", 10.0, 10.0, 20.0, differing=2),
        entry("vllm", failure="it ended with exit status 1: no [luck]"),
        entry("llama.cpp", failure="absent"),
    ),
)
RESULT = ThroughputResult(
    model="tiny",
    dtype="float32",
    threads=2,
    repeats=3,
    seed=0,
    stage=6,
    machine={"processor": "A processor", "cpus": 2},
    rates=None,
    contestants=(
        ContestantRecord(OURS, load_seconds=1.25, versions={"torch": "2.11"}, settings={}),
        ContestantRecord("llama.cpp", absent="No module named 'llama_cpp'"),
    ),
    workloads=(WORKLOAD,),
)


def shown(result: ThroughputResult) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False, markup=False)
    console.print(throughput_report(result))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_numbers_are_where_they_belong() -> None:
    text = shown(RESULT)
    rows = [line.split() for line in text.splitlines()]
    assert [OURS, "200.0", "125.0", "250.0", "1.00", "500", "–"] in rows
    assert ["hf", "100.0", "50.0", "100.0", "2.00", "500", "30", "of", "32"] in rows
    assert ["vllm", "failed", "–", "–", "–", "–", "–"] in rows
    assert ["llama.cpp", "absent", "–", "–", "–", "–", "–"] in rows
    flat = " ".join(text.split())
    assert "tiny in float32, 2 threads, median of 3 alternating runs, our engine at stage 6" in flat
    assert "2,000 prompt and 1,000 output tokens" in flat
    assert "only the linear layers: 250 tokens/s; ours reaches 80% of it" in flat
    assert "vllm: it ended with exit status 1: no [luck]" in flat
    assert (
        "hf: 2 requests got different tokens than from minipaged, the first of them request 3 from token 17"
        in flat
    )
    assert "minipaged: torch 2.11; loaded in 1.2 s" in flat
    assert "llama.cpp: absent (No module named 'llama_cpp')" in flat
    assert max(len(line) for line in text.splitlines()) <= 80


def test_padding_is_told() -> None:
    padded = replace(WORKLOAD.entries[1].runs[0], num_computed_tokens=7000)
    hf = replace(WORKLOAD.entries[1], runs=(padded,))
    text = shown(replace(RESULT, workloads=(replace(WORKLOAD, entries=(hf,)),)))
    assert "hf: computed 7,000 tokens, and 3,000 were needed" in " ".join(text.split())


def test_without_ours_there_are_no_ratios() -> None:
    ours = entry(OURS, failure="ended before")
    text = shown(replace(RESULT, workloads=(replace(WORKLOAD, entries=(ours, WORKLOAD.entries[1])),)))
    rows = [line.split() for line in text.splitlines()]
    assert [OURS, "ended", "before", "–", "–", "–", "–", "–"] in rows
    assert ["hf", "100.0", "50.0", "100.0", "–", "500", "30", "of", "32"] in rows
    assert "ours reaches" not in text


def test_json_has_everything() -> None:
    document = json.loads(RESULT.to_json())
    ours, hf, vllm, _ = document["workloads"][0]["entries"]
    assert ours["tokens_per_second"] == 200.0
    assert (hf["ours_over_this"], hf["spread"]) == (2.0, [50.0, 100.0])
    assert (vllm["tokens_per_second"], vllm["ours_over_this"]) == (None, None)
    assert document["contestants"][1]["absent"] == "No module named 'llama_cpp'"
