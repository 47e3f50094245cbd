"""What was measured: runs, entries of the table, and how far the tokens agree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from minipaged.bench.throughput.contestants import OURS

Outputs = tuple[tuple[int, ...], ...]
"""The output tokens of each request."""

Details = dict[str, str | int | float | None]
"""What a contestant has to say of itself or of a run."""


@dataclass(frozen=True)
class Run:
    """One run of a contestant over a workload.

    Attributes:
        seconds: from the arrival of the requests to the end of the last.
        num_output_tokens: tokens that were asked for; padding does not count.
        num_computed_tokens: prompt and output tokens that were computed, if that is known.
        peak_rss_mib: the greatest resident memory of its processes so far, in MiB.
        details: as the contestant gave them.
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
    """How many requests got other greedy tokens than from our engine.

    Random prompts have near ties, where either token is right: a difference is not an error.

    Attributes:
        num_requests: all of them.
        num_differing: those with any other token, in the run with most of them.
        first: request and position of the first token that differs; `None` if none does.
    """

    num_requests: int
    num_differing: int
    first: tuple[int, int] | None


@dataclass(frozen=True)
class Entry:
    """A contestant on a workload.

    Attributes:
        contestant: its name.
        runs: those that succeeded.
        failure: why there are no more, if there are not.
        agreement: with our engine's tokens; `None` where that is not known, or for our engine itself.
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
    """A workload, and what each contestant did with it.

    Attributes:
        name, description: which it is.
        num_requests, num_prompt_tokens, num_output_tokens: of the workload.
        bound: output tokens per second that this machine could give at most; `None` if not measured.
        entries: in the order of the contestants.
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
        """Our engine's tokens per second over those of an entry: above 1, ours is faster."""
        if self.ours is None or entry.tokens_per_second is None:
            return None
        return self.ours / entry.tokens_per_second


@dataclass(frozen=True)
class ContestantRecord:
    """What is known of a contestant beside its runs.

    Attributes:
        name: the contestant's.
        absent: why it is not there, if it is not.
        failure: why it could not be loaded or did not come to its end, if so.
        log: the last lines of what it said then.
        load_seconds: from its first line to a model that is ready, imports included.
        versions: of the packages that matter.
        settings: what was set.
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
    """All that was measured, and on what.

    Attributes:
        model, dtype, threads, repeats, seed, stage: as they were asked for.
        machine: processor, CPUs, memory, system.
        rates: the machine's own rates that the bounds were made of; `None` if not measured.
        contestants: all that were asked for.
        workloads: what came out.
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
        """All fields by their names; of each entry also its median, spread and ratio."""
        document = asdict(self)
        for workload, shown in zip(self.workloads, document["workloads"], strict=True):
            for entry, row in zip(workload.entries, shown["entries"], strict=True):
                row["tokens_per_second"] = entry.tokens_per_second
                row["spread"] = entry.spread
                row["ours_over_this"] = workload.ratio(entry)
        return json.dumps(document, indent=2) + "\n"


def compare(expected: Outputs, runs: Sequence[Outputs]) -> Agreement:
    """Compare the tokens of some runs with ours; all have the same lengths."""
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
