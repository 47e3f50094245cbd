"""The measurements: the runs, the entries of the table, and how far the tokens agree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from minipaged.bench.throughput.contestants import OURS

Outputs = tuple[tuple[int, ...], ...]
"""The output tokens of each request."""

Details = dict[str, str | int | float | None]
"""Facts that a contestant reports about itself or about a run."""


@dataclass(frozen=True)
class Run:
    """One run of a contestant for a workload.

    Attributes:
        seconds: time from the arrival of the requests to the end of the last one.
        num_output_tokens: output tokens that the requests asked for. Padding does not count.
        num_computed_tokens: prompt and output tokens that were computed; `None` if unknown.
        peak_rss_mib: peak resident memory of the contestant's processes so far, in MiB.
        details: other facts that the contestant reported.
    """

    seconds: float
    num_output_tokens: int
    num_computed_tokens: int | None
    peak_rss_mib: float
    details: Details

    @property
    def tokens_per_second(self) -> float:
        return self.num_output_tokens / self.seconds


@dataclass(frozen=True)
class Agreement:
    """For how many requests a contestant's greedy tokens differ from our engine's.

    A difference is not an error. Random prompts lead to near ties, where either token is right.

    Attributes:
        num_requests: number of all requests.
        num_differing: number of requests with any different token, in the run in which this number is
            largest.
        first: request and position of the first different token; `None` if all tokens are equal.
    """

    num_requests: int
    num_differing: int
    first: tuple[int, int] | None


@dataclass(frozen=True)
class Entry:
    """The results of one contestant for one workload.

    Attributes:
        contestant: the contestant's name.
        runs: the runs that succeeded.
        failure: the reason why runs are missing; `None` if all runs succeeded.
        agreement: agreement with our engine's tokens; `None` if unknown, and for our engine itself.
    """

    contestant: str
    runs: tuple[Run, ...]
    failure: str | None
    agreement: Agreement | None

    @property
    def tokens_per_second(self) -> float | None:
        """The median over the runs; `None` without runs."""
        return median(run.tokens_per_second for run in self.runs) if self.runs else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The slowest and the fastest run, in tokens per second."""
        speeds = [run.tokens_per_second for run in self.runs]
        return (min(speeds), max(speeds)) if speeds else None

    @property
    def peak_rss_mib(self) -> float | None:
        return max((run.peak_rss_mib for run in self.runs), default=None)


@dataclass(frozen=True)
class WorkloadResult:
    """A workload, and the results of each contestant.

    Attributes:
        name, description: the workload's name, and a few words about it.
        num_requests, num_prompt_tokens, num_output_tokens: counts of the workload.
        bound: upper bound on this machine's output tokens per second; `None` if not measured.
        entries: the contestants' results, in the order of the contestants.
    """

    name: str
    description: str
    num_requests: int
    num_prompt_tokens: int
    num_output_tokens: int
    bound: float | None
    entries: tuple[Entry, ...]

    @property
    def ours(self) -> float | None:
        """Our engine's tokens per second."""
        found = [each.tokens_per_second for each in self.entries if each.contestant == OURS]
        return found[0] if found else None

    def ratio(self, entry: Entry) -> float | None:
        """Our engine's tokens per second divided by an entry's. Above 1, our engine is faster."""
        if self.ours is None or entry.tokens_per_second is None:
            return None
        return self.ours / entry.tokens_per_second


@dataclass(frozen=True)
class ContestantRecord:
    """Facts about a contestant, besides its runs.

    Attributes:
        name: the contestant's name.
        absent: why the contestant is not installed; `None` if it is.
        failure: why the contestant could not be loaded, or why its process ended; `None` if all went well.
        log: the last lines of its log at the failure.
        load_seconds: time from the start of its script to a loaded model, including imports.
        versions: versions of the packages that it uses.
        settings: settings that it used.
    """

    name: str
    absent: str | None = None
    failure: str | None = None
    log: str | None = None
    load_seconds: float | None = None
    versions: Details | None = None
    settings: Details | None = None


@dataclass(frozen=True)
class ThroughputResult:
    """All measurements, and the settings with which they were made.

    Attributes:
        model, dtype, threads, repeats, seed, stage: the settings that the user asked for.
        machine: processor, CPUs, memory, system.
        rates: the machine's measured rates, from which the bounds follow; `None` if not measured.
        contestants: records of all contestants, including absent ones.
        workloads: the result of each workload.
    """

    model: str
    dtype: str
    threads: int
    repeats: int
    seed: int
    stage: int | None
    machine: Details
    rates: Details | None
    contestants: tuple[ContestantRecord, ...]
    workloads: tuple[WorkloadResult, ...]

    def to_json(self) -> str:
        """All fields by name. Each entry also has its median, spread and ratio."""
        document = asdict(self)
        for workload, shown in zip(self.workloads, document["workloads"], strict=True):
            for entry, row in zip(workload.entries, shown["entries"], strict=True):
                row["tokens_per_second"] = entry.tokens_per_second
                row["spread"] = entry.spread
                row["ours_over_this"] = workload.ratio(entry)
        return json.dumps(document, indent=2) + "\n"


def compare(expected: Outputs, runs: Sequence[Outputs]) -> Agreement:
    """Compare the tokens of several runs with ours. Outputs of the same request have the same length."""
    worst = Agreement(len(expected), 0, None)
    for outputs in runs:
        pairs = list(zip(expected, outputs, strict=True))
        differing = [i for i, (ours, theirs) in enumerate(pairs) if ours != theirs]
        if len(differing) > worst.num_differing:
            i = differing[0]
            same = [ours == theirs for ours, theirs in zip(*pairs[i], strict=True)]
            position = same.index(False)
            worst = Agreement(len(expected), len(differing), (i, position))
    return worst
