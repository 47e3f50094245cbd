"""A process that has imported what is slow, and forks for each run of a chapter's tests.

Importing torch and transformers takes seconds, every time. A notebook checks many exercises, so its
checks share one process that did it once: for each run that forks, and the child is pytest. The
process imports no file of the reader's, and none of this project's (so it runs this file as a
script): what was saved is always read anew.

Where processes are not forked safely (macOS, Windows), there is none, and each run starts from nothing.

    python -P warm.py MODULE …        reads requests from stdin, answers on stdout: lines of JSON
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

SLOW_IMPORTS = ("numpy", "hypothesis", "pytest", "torch", "transformers.models.llama.modeling_llama")
"""None of this project's: see above."""


@dataclass(frozen=True)
class Request:
    """One run of pytest.

    Attributes:
        arguments: of pytest.
        folder: where it runs.
        output: the file for what it prints.
        environment: its variables; also those of the notebook that were set meanwhile.
    """

    arguments: Sequence[str]
    folder: str
    output: str
    environment: Mapping[str, str]


class WarmProcessDiedError(Exception):
    """The warm process is gone, and with it the run: begin it anew, some other way."""


class WarmProcess:
    """The process, seen from the notebook. It ends with the notebook's own.

    Raises:
        OSError: it could not be started.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, *SLOW_IMPORTS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what it cannot import, the run itself will miss, and say so
            bufsize=0,  # so that nothing that has come is hidden from `select`
            start_new_session=True,  # Ctrl-C is for the notebook, which then ends the run itself
        )
        atexit.register(self.close)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def begin(self, request: Request) -> WarmRun | None:
        """Begin to run pytest; `None` if the process is gone.

        Raises:
            KeyboardInterrupt: nothing was begun, and the process is gone.
        """
        try:
            child = self._ask(asdict(request))
        except BaseException:
            self._process.terminate()  # the answer that is still to come is nobody's
            self.close()
            raise
        return None if child is None else WarmRun(self, child)

    def close(self) -> None:
        """End it, and what it runs."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
        atexit.unregister(self.close)

    def answer(self) -> int | None:
        """The next answer, when it comes; `None` if the process is gone."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return int(line) if line.endswith(b"\n") else None

    def has_answered(self, seconds: float) -> bool:
        """Whether an answer has come after that time."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def _ask(self, request: Mapping[str, object]) -> int | None:
        """The id of the child that runs it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{json.dumps(request)}\n".encode())
        except OSError:
            return None
        return self.answer()


class WarmRun:
    """One run of pytest, in a child of the warm process.

    Args:
        process: that has the child.
        child: its id.
    """

    def __init__(self, process: WarmProcess, child: int) -> None:
        self._process = process
        self._child = child
        self._has_ended = False

    def wait(self, seconds: float) -> int | None:
        """Its exit code, or minus the signal that killed it; `None` if it still runs after that time.

        Raises:
            WarmProcessDiedError: so it is.
        """
        if not self._process.has_answered(seconds):
            return None
        self._has_ended = True
        code = self._process.answer()
        if code is None:
            self._kill_child()
            raise WarmProcessDiedError
        return code

    def end(self) -> None:
        """Kill it, if it still runs; the next run can begin."""
        if not self._has_ended:
            self._kill_child()
            self._process.answer()
            self._has_ended = True

    def _kill_child(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child, signal.SIGKILL)


@functools.cache
def _shared() -> list[WarmProcess]:
    """This process's own: none, or one."""
    return []


def begin_warm(request: Request) -> WarmRun | None:
    """Begin to run pytest in a fork of the warm process, which the first call starts.

    Returns:
        The run; `None` where there is no such process: run it some other way.

    Raises:
        KeyboardInterrupt: nothing was begun.
    """
    if sys.platform != "linux":
        return None
    shared = _shared()
    if shared and not shared[0].is_alive:
        shared.clear()
    if not shared:
        shared.append(WarmProcess())
    return shared[0].begin(request)


def serve(modules: Sequence[str]) -> None:
    """The process itself. Ends when its stdin does."""
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # what is imported stays: a run that collects garbage need not look through it
    signal.signal(signal.SIGTERM, _end)
    while line := sys.stdin.readline():
        child = os.fork()
        if not child:
            _become_pytest(Request(**json.loads(line)))
        try:
            with contextlib.suppress(PermissionError):  # the child says so as well: whoever is first
                os.setpgid(child, child)
            print(child, flush=True)
            _, status = os.waitpid(child, 0)
        except SystemExit:
            os.killpg(child, signal.SIGKILL)
            raise
        print(os.waitstatus_to_exitcode(status), flush=True)


def _end(*_: object) -> None:
    raise SystemExit


def _become_pytest(request: Request) -> None:
    """In the child; does not return."""
    code = 3
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        output = os.open(request.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for ours, number in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(ours, number)
        os.chdir(request.folder)
        os.environ.clear()
        os.environ.update(request.environment)
        sys.path[:] = [request.folder, *(each for each in sys.path if Path(each or ".").is_absolute())]
        import pytest

        code = int(pytest.main(list(request.arguments)))
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 3
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1:])
    os._exit(0)  # at once: torch has much to tidy up, and a notebook waits for this as it closes
