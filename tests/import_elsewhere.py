"""Imports every module of the package as on Windows: a script, since it hides what Unix alone has.

python -P import_elsewhere.py     writes a line of JSON: for each module that failed, the error
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path

UNIX_MODULES = """curses fcntl grp posix pty pwd readline resource syslog termios tty"""

UNIX_NAMES = {
    os: """fork forkpty register_at_fork killpg getpgid setpgid getpgrp setpgrp setsid getsid getuid geteuid
        getgid getegid sched_getaffinity sched_setaffinity sysconf getloadavg mkfifo nice wait wait3 wait4
        chown fchown chroot WNOHANG WIFEXITED O_NONBLOCK O_CLOEXEC posix_spawn pread pwrite sendfile""",
    signal: """SIGALRM SIGKILL SIGSTOP SIGCONT SIGTSTP SIGUSR1 SIGUSR2 SIGHUP SIGQUIT SIGPIPE SIGCHLD
        ITIMER_REAL setitimer getitimer alarm pause pthread_kill pthread_sigmask sigwait siginterrupt""",
    socket: "AF_UNIX",
    select: "poll epoll kqueue",
}


def names() -> list[str]:
    """Of all modules, as `import` takes them."""
    import minipaged

    package = Path(minipaged.__file__).parent
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        if parts[-1] != "__main__" and not parts[-1].startswith("run_"):  # scripts of processes of their own
            found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


def import_all() -> dict[str, str]:
    failed = {}
    for name in names():
        try:
            importlib.import_module(name)
        except (ImportError, AttributeError, OSError, ValueError) as error:  # our own errors are ValueErrors
            failed[name] = str(error)
    return failed


def main() -> None:
    import_all()  # so that what it needs of others is there, and keeps what it found
    for name in [name for name in sys.modules if name.partition(".")[0] in ("minipaged", "triton")]:
        del sys.modules[name]
    for name in [*UNIX_MODULES.split(), "triton"]:
        sys.modules[name] = None  # pyright: ignore[reportArgumentType]
    for module, hidden in UNIX_NAMES.items():
        for name in hidden.split():
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "win32"
    print(json.dumps(import_all()))


if __name__ == "__main__":
    main()
