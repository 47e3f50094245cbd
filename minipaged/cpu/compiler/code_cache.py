"""Where compiled code is kept between processes: one folder for each state of the sources.

numba checks whether the file of a function has changed, but not the files of the functions that it calls.
So compiled code could contain an old version of an innermost loop that has been edited since. Therefore the
folder's name is a hash of all sources that are compiled. Editing other files recompiles nothing.
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
"""The imports by which we recognise a file with compiled functions, or with code that becomes part of them. A
constant that compiled functions use has to be in such a file, too."""

SPACE_BYTES = 64 * 1024**2
"""How many bytes have to be free on the disk. numba fails if it cannot write its compiled code."""

logger = logging.getLogger(__name__)

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def own_cache() -> Iterator[bool]:
    """Within the block, numba stores compiled code in our folder. Yields whether there is such a folder.

    numba's setting is for the whole process, so the block restores it at its end. A program's own functions
    are still stored where they were before.
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
    """The folder for compiled code, or `None`. It is next to the sources or in the user's cache folder.

    The result is `None` if neither place can be used. If the folder holds no compiled code yet, a warning is
    logged, since a user would wonder why the start takes so long.
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
    # For a user without a home, `Path.home()` would raise an error. `expanduser` leaves the path as it is.
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [Path(folder) / "minipaged"] if Path(folder).is_absolute() else []


def sources_hash() -> str:
    """Hash of the contents of all files with compiled functions.

    This file is left out: it imports numba, but has no compiled functions.
    """
    digest = hashlib.sha256()
    for path in sorted((PACKAGE / SOURCES).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if COMPILED.search(text) and path != Path(__file__):
            name = path.relative_to(PACKAGE).as_posix()
            digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()[:16]
