"""The match: every contestant serves every workload. They take turns, so all meet the same conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import cast

from minipaged.bench.throughput.child import AbsentError, Child, ContestantError, Message
from minipaged.bench.throughput.contestants import OURS, Contestant
from minipaged.bench.throughput.results import (
    ContestantRecord,
    Details,
    Entry,
    Outputs,
    Run,
    WorkloadResult,
    compare,
)
from minipaged.bench.throughput.workloads import WorkloadName
from minipaged.sim.workload import Workload, WorkloadRequest

WARM_UP_REQUESTS, WARM_UP_TOKENS = 4, 8

Tell = Callable[[str], None]
"""Called with one line of text about the progress."""


@dataclass(frozen=True)
class Rules:
    """The rules of the whole match.

    Attributes:
        repeats: runs of each contestant for each workload.
        load_limit: time limit for loading, in seconds.
        run_limit: time limit for a run, in seconds.
    """

    repeats: int
    load_limit: float
    run_limit: float


class Match:
    """The contestants' processes and their records. A context manager that starts and ends the processes.

    On entry, all contestants are loaded. If a contestant is absent or fails, this is recorded, and the other
    contestants go on.

    Args:
        contestants: the engines to compare.
        jobs: the first message to each contestant, by its name.
        rules: the rules for all contestants.
        tell: called with a line of text about each event.
    """

    def __init__(
        self, contestants: Sequence[Contestant], jobs: Mapping[str, Message], rules: Rules, tell: Tell
    ) -> None:
        self._contestants = contestants
        self._jobs = jobs
        self._rules = rules
        self._tell = tell
        self._processes = ExitStack()
        self._children: dict[str, Child] = {}
        self._ended: dict[str, str] = {}
        self._records: dict[str, ContestantRecord] = {}

    def __enter__(self) -> Match:
        try:
            for contestant in self._contestants:
                self._records[contestant.name] = self._load(contestant)
        except BaseException:
            self._processes.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()

    @property
    def records(self) -> tuple[ContestantRecord, ...]:
        """The record of each contestant, in the order in which they were given."""
        return tuple(self._records.values())

    def run(self, name: WorkloadName, workload: Workload, bound: float | None) -> WorkloadResult:
        """Let the contestants serve a workload in turns, `rules.repeats` times each.

        Args:
            name: the workload's name.
            workload: the requests to serve.
            bound: the machine's bound on the output tokens per second, for the record.
        """
        runs: dict[str, list[Run]] = {each: [] for each in self._children}
        outputs: dict[str, list[Outputs]] = {each: [] for each in self._children}
        failures: dict[str, str] = {
            each.name: self._ended[each.name] for each in self._contestants if each.name in self._ended
        }
        message = _message(workload.requests)
        for number in range(self._rules.repeats):
            for contestant in list(self._children):
                if contestant in failures:
                    continue
                try:
                    answer = self._ask(contestant, message)
                    tokens = _checked_outputs(answer, workload)
                    run = _run(answer, workload)
                except ContestantError as error:
                    failures[contestant] = str(error)
                    self._tell(f"{name}, {contestant}: {error}")
                    continue
                runs[contestant].append(run)
                outputs[contestant].append(tokens)
                self._tell(
                    f"{name}, run {number + 1}, {contestant}: {run.tokens_per_second:,.1f} output tokens/s"
                )
        ours = outputs.get(OURS, [])
        entries = tuple(
            Entry(
                contestant=each.name,
                runs=tuple(runs.get(each.name, ())),
                failure=failures.get(each.name),
                agreement=compare(ours[0], outputs[each.name])
                if ours and each.name != OURS and outputs.get(each.name)
                else None,
            )
            for each in self._contestants
        )
        return WorkloadResult(
            name=name,
            description=workload.name,
            num_requests=len(workload.requests),
            num_prompt_tokens=workload.num_prompt_tokens,
            num_output_tokens=workload.num_output_tokens,
            bound=bound,
            entries=entries,
        )

    def _load(self, contestant: Contestant) -> ContestantRecord:
        self._tell(f"{contestant.name}: loading")
        try:
            child = Child(contestant, self._jobs[contestant.name], self._rules.load_limit)
        except AbsentError as error:
            self._tell(f"{contestant.name}: absent ({error})")
            self._ended[contestant.name] = "absent"
            return ContestantRecord(contestant.name, absent=str(error))
        except ContestantError as error:
            self._tell(f"{contestant.name}: {error}")
            self._ended[contestant.name] = "not loaded"
            return ContestantRecord(contestant.name, failure=f"while loading, {error}", log=error.log)
        self._children[contestant.name] = self._processes.enter_context(child)
        loaded = child.loaded
        return ContestantRecord(
            name=contestant.name,
            load_seconds=cast(float, loaded["load_seconds"]),
            versions=cast(Details, loaded["versions"]),
            settings=cast(Details, loaded["settings"]),
        )

    def _ask(self, contestant: str, message: Message) -> Message:
        try:
            return self._children[contestant].ask(message, self._rules.run_limit)
        except ContestantError as error:
            self._children.pop(contestant).end()
            self._ended[contestant] = "ended before"
            self._records[contestant] = replace(self._records[contestant], failure=str(error), log=error.log)
            raise


def warm_up(workload: Workload) -> Message:
    """The message for a short run with the workload's first requests."""
    first = workload.requests[:WARM_UP_REQUESTS]
    return _message([replace(each, max_tokens=min(each.max_tokens, WARM_UP_TOKENS)) for each in first])


def _message(requests: Sequence[WorkloadRequest]) -> Message:
    return {
        "prompts": [list(each.prompt_token_ids) for each in requests],
        "max_tokens": [each.max_tokens for each in requests],
    }


def _checked_outputs(answer: Message, workload: Workload) -> Outputs:
    """The output tokens of an answer, after checking their number.

    Raises:
        ContestantError: a request has more or fewer output tokens than it asked for.
    """
    outputs = cast("list[list[int]]", answer.get("outputs"))
    if not isinstance(outputs, list) or len(outputs) != len(workload.requests):
        raise ContestantError(f"it did not answer all of the {len(workload.requests)} requests")
    for number, (tokens, request) in enumerate(zip(outputs, workload.requests, strict=True)):
        if len(tokens) != request.max_tokens:
            raise ContestantError(
                f"it gave {len(tokens)} tokens for request {number}, not the {request.max_tokens} asked for"
            )
    return tuple(tuple(tokens) for tokens in outputs)


def _run(answer: Message, workload: Workload) -> Run:
    try:
        return Run(
            seconds=float(cast(float, answer["seconds"])),
            num_output_tokens=workload.num_output_tokens,
            num_computed_tokens=cast("int | None", answer.get("num_computed_tokens")),
            peak_rss_mib=float(cast(float, answer["peak_rss_mib"])),
            details=cast(Details, answer.get("details", {})),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ContestantError(f"its answer has no {error}") from None
