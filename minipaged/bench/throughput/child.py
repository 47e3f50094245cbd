"""A contestant's process. It is started once, asked to run several times, and stopped between its runs.

Between runs the whole process group is stopped (SIGSTOP). Otherwise its threads might wait for work in busy
loops, and so slow down the contestant that is running. The group is in this process's session. So if
this process dies, the kernel sends the stopped group a hang-up signal, which ends it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import IO

import psutil

from minipaged.bench.throughput.contestants import Contestant
from minipaged.errors import ConfigError, MinipagedError

MARK = b"@bench "
"""The beginning of each answer; see `peers/serve_runs.py`."""

Message = Mapping[str, object]
_LOG_LINES = 60
_CHUNK = 65_536
_DYING_S = 10.0
"""How long to wait for a killed process. A process inside a system call may not end at once."""
_POLL_S = 0.005


class AbsentError(MinipagedError):
    """The engine is not installed."""


class ContestantError(MinipagedError):
    """The contestant's process ended, took too long, or gave an invalid answer.

    Attributes:
        log: the last lines that the process wrote to stderr.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def refuse_without_job_control() -> None:
    """Refuse a system that cannot stop processes for a while, or wait for data in their pipes.

    Raises:
        ConfigError: the system is Windows.
    """
    if not hasattr(os, "killpg"):
        raise ConfigError(
            "bench throughput stops each engine while another one runs, which Windows cannot do: use Linux, "
            "macOS, or Linux under Windows (WSL). `minipaged ladder` measures this engine alone, anywhere"
        )


class Child:
    """One contestant's process, as a context manager that ends the process.

    Args:
        contestant: the contestant.
        job: the first message to the process.
        limit: time limit for loading and warming up, in seconds.

    Attributes:
        loaded: the answer to the job.

    Raises:
        AbsentError: the engine or the interpreter is not installed.
        ContestantError: the process ended or took too long.
    """

    def __init__(self, contestant: Contestant, job: Message, limit: float) -> None:
        self._pending = b""
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `end`)
        try:
            self._process = subprocess.Popen(
                [contestant.python, str(contestant.script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, **contestant.environment},
                process_group=0,
            )
        except OSError as error:
            self._log.close()
            raise AbsentError(f"{contestant.python} cannot be run: {error.strerror}") from None
        self._groups = {self._process.pid}
        try:
            self.loaded = self.ask(job, limit)
            if "absent" in self.loaded:
                raise AbsentError(str(self.loaded["absent"]))
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def ask(self, message: Message, limit: float) -> Message:
        """Wake the process, send a message, wait for the answer, and stop the process again.

        Args:
            message: the request to the process.
            limit: time limit for the answer, in seconds.

        Raises:
            ContestantError: the process ended or took longer than the limit. The process cannot be asked
                again.
        """
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._answer(limit)
        except BrokenPipeError:
            raise self._how_it_ended() from None
        self._groups = self._find_groups()
        self._signal(signal.SIGSTOP)
        return answer

    def end(self) -> None:
        """Kill the process and all its descendants, and wait until none of them runs."""
        self._groups |= self._find_groups()
        family = self._family()
        self._signal(signal.SIGKILL)
        self._process.wait()
        deadline = time.monotonic() + _DYING_S
        while any(map(_runs, family)) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._log.close()

    def _answer(self, limit: float) -> Message:
        assert self._process.stdout is not None
        deadline = time.monotonic() + limit
        pipe = self._process.stdout.fileno()
        while True:
            while b"\n" in self._pending:
                line, _, self._pending = self._pending.partition(b"\n")
                if line.startswith(MARK):
                    return _parse(line.removeprefix(MARK))
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise ContestantError(f"it gave no answer within {limit:g} seconds", self._log_tail())
            chunk = os.read(pipe, _CHUNK)
            if not chunk:
                raise self._how_it_ended()
            self._pending += chunk

    def _how_it_ended(self) -> ContestantError:
        code = self._process.wait()
        how = f"it was ended by signal {-code}" if code < 0 else f"it ended with exit status {code}"
        log = self._log_tail()
        return ContestantError(f"{how}: {log.splitlines()[-1].strip()}" if log else how, log)

    def _log_tail(self) -> str:
        self._log.seek(0)
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return "\n".join(lines[-_LOG_LINES:])

    def _find_groups(self) -> set[int]:
        """The process groups of the process and of all its descendants."""
        groups = {self._process.pid}
        for each in self._family():
            with suppress(OSError):
                groups.add(os.getpgid(each.pid))
        groups.discard(os.getpgid(0))
        return groups

    def _family(self) -> list[psutil.Process]:
        """All descendants of the process: its children, their children, and so on."""
        with suppress(psutil.Error):
            return psutil.Process(self._process.pid).children(recursive=True)
        return []

    def _signal(self, number: signal.Signals) -> None:
        for group in self._groups:
            with suppress(OSError):
                os.killpg(group, number)


def _runs(process: psutil.Process) -> bool:
    """Whether a process is alive. A zombie counts as dead: it may stay forever if its parent is dead."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _parse(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise ContestantError(f"its answer is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise ContestantError(f"its answer is not a JSON object: {message!r:.80}")
    return message
