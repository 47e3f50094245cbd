"""Where compiled code is kept between processes: one folder for each state of the sources.

numba looks whether the file of a function has changed, but not the files of the functions that it calls:
compiled code would go on with an innermost loop that is no longer there. So the folder's name tells the
contents of all sources that are compiled. No other file counts: to edit it recompiles nothing.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from numba.core import config

PACKAGE = Path(__file__).parents[2]
SOURCES = "cpu"
"""The folder with all compiled functions."""

COMPILED = re.compile(r"^(from|import) (numba|llvmlite|minipaged\.cpu\.compiler\.compiled)\b", re.MULTILINE)
"""What a file imports that has compiled functions, or makes code that becomes a part of them. A constant that
they use has to be in such a file, too."""

SPACE_BYTES = 64 * 1024**2
"""What has to be free on a disk: numba does not expect that it cannot write what it has compiled."""

logger = logging.getLogger(__name__)

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def own_cache() -> Iterator[bool]:
    """While it lasts, numba keeps what is compiled in our folder. Gives whether there is one.

    numba's setting is for the whole process, so it is put back: a program's own functions are kept where they
    were.
    """
    folder = cache_folder()
    with _ONE_AT_A_TIME:
        before = config.CACHE_DIR  # pyright: ignore[reportAttributeAccessIssue]
        if folder is not None:
            config.CACHE_DIR = str(folder)  # pyright: ignore[reportAttributeAccessIssue]
        try:
            yield folder is not None
        finally:
            config.CACHE_DIR = before  # pyright: ignore[reportAttributeAccessIssue]


@cache
def cache_folder() -> Path | None:
    """Beside the sources, or in the user's cache folder; `None` if neither can be written, or is full.

    Says so where there is nothing kept: compiling takes long enough to wonder about.
    """
    name = f"compiled-{sources_hash()}"
    beside = PACKAGE / "__pycache__"
    for of_other_sources in set(beside.glob("compiled-*")) - {beside / name}:
        shutil.rmtree(of_other_sources, ignore_errors=True)
    for parent in (beside, *_users_cache()):
        is_new = not (parent / name).exists()
        try:
            (parent / name).mkdir(parents=True, exist_ok=True)
            roomy = shutil.disk_usage(parent / name).free >= SPACE_BYTES
        except OSError:
            continue
        if roomy and os.access(parent / name, os.W_OK):
            if is_new:
                logger.warning("compiling loops for this processor: half a minute or so, the first time only")
            return parent / name
    logger.warning(
        "compiling loops for this processor, half a minute or so, in every process: neither %s nor the "
        "user's cache folder can be written, or their disks are full. Set XDG_CACHE_HOME to one that can.",
        beside,
    )
    return None


def _users_cache() -> list[Path]:
    """The user's cache folder for this project, if there is a user with a home."""
    # Without a home, `Path.home()` would raise; this stays as it is.
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [Path(folder) / "minipaged"] if Path(folder).is_absolute() else []


def sources_hash() -> str:
    """Of the contents of every file that is compiled, all but this one: it imports numba, and nothing
    else."""
    digest = hashlib.sha256()
    for path in sorted((PACKAGE / SOURCES).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if COMPILED.search(text) and path != Path(__file__):
            name = path.relative_to(PACKAGE).as_posix()
            digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()[:16]
