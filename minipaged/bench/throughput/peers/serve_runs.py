"""The child's side of the benchmark: load a model once, then serve runs over stdin and stdout.

Each message and each answer is one line of JSON. The parent's first line is a job. Its answer says that the
model is loaded and warmed up, or that the engine is not installed. Each later line is a run. Answers begin
with `MARK`, so that the parent can tell them from other text that a library prints.

This module needs only the standard library, since it runs in environments without minipaged.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol, TextIO

MARK = "@bench "
STARTED = time.perf_counter()


@dataclass(frozen=True)
class Job:
    """What to load.

    Attributes:
        model: path of a Hugging Face folder or of a GGUF file.
        dtype: `float32` or `bfloat16`.
        threads: number of threads to compute with.
        max_model_len: tokens of the longest request.
        max_num_seqs: largest number of requests at once.
        kv_cache_bytes: memory for keys and values.
        kv_bytes_per_token: bytes of one token's keys and values in all layers.
        stage: the stage of our own engine; `None` for the default engine.
        warm_up: short runs before the first measured run.
    """

    model: str
    dtype: str
    threads: int
    max_model_len: int
    max_num_seqs: int
    kv_cache_bytes: int
    kv_bytes_per_token: int
    stage: int | None
    warm_up: list[dict[str, list]]


@dataclass(frozen=True)
class Served:
    """The result of one run.

    Attributes:
        outputs: the output tokens of each request.
        seconds: time from the arrival of the first request to the end of the last one.
        num_computed_tokens: tokens that went through the model, if the engine pads. `None` if it does not
            pad.
        details: other facts about the run.
    """

    outputs: list[list[int]]
    seconds: float
    num_computed_tokens: int | None = None
    details: dict[str, str | int | float] = field(default_factory=dict)


class Engine(Protocol):
    """An engine with its model loaded.

    Attributes:
        packages: packages whose versions are recorded, if they are installed.
        settings: settings of the engine, for the record.
    """

    packages: tuple[str, ...]
    settings: dict[str, str | int | float | None]

    def run(self, prompts: list[list[int]], max_tokens: list[int]) -> Served:
        """Serve all requests with greedy sampling, each with exactly its `max_tokens` output tokens.

        The engine first forgets what earlier runs have cached.
        """
        ...


def serve(load: Callable[[Job], Engine]) -> None:
    """Answer the parent until it closes stdin.

    Args:
        load: imports the engine and loads the model. An ImportError means that the engine is not installed.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # all output of libraries goes to stderr
    job = Job(**json.loads(sys.stdin.readline()))
    try:
        engine = load(job)
    except ImportError as error:
        _answer(answers, {"absent": f"{type(error).__name__}: {error}"})
        return
    load_seconds = time.perf_counter() - STARTED
    for run in job.warm_up:
        engine.run(run["prompts"], run["max_tokens"])
    _answer(
        answers,
        {
            "load_seconds": load_seconds,
            "versions": {"python": platform.python_version(), **_versions(engine.packages)},
            "settings": engine.settings,
        },
    )
    for line in sys.stdin:
        run = json.loads(line)
        served = engine.run(run["prompts"], run["max_tokens"])
        _answer(answers, {**asdict(served), "peak_rss_mib": peak_rss_mib()})


def peak_rss_mib() -> float:
    """The peak resident memory of this process and all its descendants, in MiB.

    The result is the sum of the processes' peaks. Shared pages count once for each process that shares them.
    On systems without /proc, only this process counts.
    """
    import resource  # Windows has none; there is no throughput benchmark there

    own = os.getpid()
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The process name is in brackets and may itself contain brackets and spaces. The parent's id is
            # the second field after the name.
            parents[int(folder.name)] = int(
                (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
            )
        except (OSError, ValueError):
            continue  # the process has just ended
    if own not in parents:
        scale = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 2**20
    family, found = {own}, {own}
    while found:
        found = {pid for pid, parent in parents.items() if parent in found} - family
        family |= found
    return sum(_peak_kib(pid) for pid in family) / 1024


def _peak_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _answer(stream: TextIO, message: dict[str, object]) -> None:
    stream.write(f"{MARK}{json.dumps(message)}\n")
    stream.flush()
