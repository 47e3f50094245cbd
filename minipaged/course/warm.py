"""A process that has imported the slow modules, and forks for each run of a chapter's tests.

Importing torch and transformers takes seconds. A notebook checks many exercises, so its checks share one
process that has imported both. It forks for each run, and the child runs pytest. The process imports none of
the reader's files and none of this project's, so the child always reads the saved files. For the same reason
this file is run as a script.

On macOS and Windows, where forking is not safe, there is no such process, and each run starts from nothing.

    python -P warm.py MODULE …        reads requests from stdin, and answers on stdout, as lines of JSON
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
"""The modules that the process imports. None belongs to this project, for the reason above."""


@dataclass(frozen=True)
class Request:
    """One run of pytest.

    Attributes:
        arguments: pytest's arguments.
        folder: the folder to run in.
        output: the file for its output.
        environment: pytest's environment variables, including those that the notebook set after
            this process was started.
    """

    arguments: Sequence[str]
    folder: str
    output: str
    environment: Mapping[str, str]


class WarmProcessDiedError(Exception):
    """The warm process has died, and the run with it. Start the run again in another way."""


class WarmProcess:
    """The notebook's handle of the warm process, which ends with the notebook's own process.

    Raises:
        OSError: the process could not be started.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, *SLOW_IMPORTS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # the run itself reports a module that is missing
            bufsize=0,  # a buffer could hold data that `select` does not see
            start_new_session=True,  # on Ctrl-C the notebook ends the run itself
        )
        atexit.register(self.close)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def begin(self, request: Request) -> WarmRun | None:
        """Start pytest in a child. Returns `None` if the process is gone.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed. Nothing was started, and the process is gone.
        """
        try:
            child = self._ask(asdict(request))
        except BaseException:
            self._process.terminate()  # its pending answer would be taken for a later one
            self.close()
            raise
        return None if child is None else WarmRun(self, child)

    def close(self) -> None:
        """End the process and its run."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
        atexit.unregister(self.close)

    def answer(self) -> int | None:
        """Wait for the next answer; `None` if the process is gone."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return int(line) if line.endswith(b"\n") else None

    def has_answered(self, seconds: float) -> bool:
        """Whether an answer comes within that time."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def _ask(self, request: Mapping[str, object]) -> int | None:
        """Send a request; returns the id of the child that runs it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{json.dumps(request)}\n".encode())
        except OSError:
            return None
        return self.answer()


class WarmRun:
    """One run of pytest, in a child of the warm process.

    Args:
        process: the parent of the child.
        child: the child's process id.
    """

    def __init__(self, process: WarmProcess, child: int) -> None:
        self._process = process
        self._child = child
        self._has_ended = False

    def wait(self, seconds: float) -> int | None:
        """pytest's exit code, or minus the signal that killed it; `None` if it still runs after that time.

        Raises:
            WarmProcessDiedError: the warm process has died.
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
        """Kill the child if it still runs. After that the next run can start."""
        if not self._has_ended:
            self._kill_child()
            self._process.answer()
            self._has_ended = True

    def _kill_child(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child, signal.SIGKILL)


@functools.cache
def _shared() -> list[WarmProcess]:
    """A list with the warm process that this process has started, or an empty list."""
    return []


def begin_warm(request: Request) -> WarmRun | None:
    """Start pytest in a fork of the warm process. The first call starts the warm process.

    Returns:
        The run; `None` if there is no warm process, and the run has to start in another way.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed, and nothing was started.
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
    """The main loop of the warm process. It ends when its stdin ends."""
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # the garbage collector of a run can skip what is imported, since it stays
    signal.signal(signal.SIGTERM, _end)
    while line := sys.stdin.readline():
        child = os.fork()
        if not child:
            _become_pytest(Request(**json.loads(line)))
        try:
            # Parent and child both make this call, since either may run first. The later call may fail.
            with contextlib.suppress(PermissionError):
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
    """Run pytest in the child; does not return."""
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
    os._exit(0)  # skips torch's slow clean-up, because a closing notebook waits for this process
