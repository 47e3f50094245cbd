"""The checks of `minipaged doctor`: packages, devices, Triton, models, folders.

Each check reports its findings and never raises, since it must also work on a broken installation.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from minipaged.view.byte_amounts import format_binary

TRITON_TIMEOUT_SECONDS = 120

State = Literal["good", "absent", "broken"]
"""`absent` is not a fault. Examples are a missing GPU and a model that was not fetched."""


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    subject: str
    state: State
    detail: str


@dataclass(frozen=True)
class Package:
    """A package that the engine imports, and its oldest usable version (major, minor)."""

    name: str
    module: str
    minimum: tuple[int, int] = (0, 0)
    required: bool = True


PYTHON_MINIMUM = (3, 11)
PACKAGES = (
    Package("torch", "torch", (2, 11)),
    Package("triton", "triton", (3, 6), required=False),
    Package("transformers", "transformers", (5, 0)),
    Package("tokenizers", "tokenizers"),
    Package("huggingface_hub", "huggingface_hub"),
    Package("safetensors", "safetensors"),
    Package("gguf", "gguf"),
    Package("numpy", "numpy"),
    Package("psutil", "psutil"),
    Package("cbor2", "cbor2"),
    Package("xxhash", "xxhash"),
)


def packages() -> list[Finding]:
    """Python and each package: its version, and whether it is new enough and can be imported."""
    current = sys.version_info[:2]
    python = sys.version.partition(" ")[0]
    if current >= PYTHON_MINIMUM:
        findings = [Finding("python", "good", python)]
    else:
        findings = [Finding("python", "broken", f"{python} is older than {_dotted(PYTHON_MINIMUM)}")]
    return findings + [package(wanted) for wanted in PACKAGES]


def package(wanted: Package) -> Finding:
    """One package's version."""
    fault: State = "broken" if wanted.required else "absent"
    try:
        version = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return Finding(wanted.name, fault, "not installed")
    match = re.match(r"(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) < wanted.minimum:
        return Finding(wanted.name, fault, f"{version} is older than {_dotted(wanted.minimum)}")
    try:
        importlib.import_module(wanted.module)
    except Exception as error:  # a broken installation may raise any exception
        return Finding(wanted.name, fault, f"{version} cannot be imported: {_last_line(str(error))}")
    return Finding(wanted.name, "good", version)


def devices() -> list[Finding]:
    """The devices, in the order in which `device="auto"` takes them: cuda, cpu. It never takes mps."""
    try:
        import torch
    except Exception as error:  # as above
        return [Finding("cpu", "absent", f"torch cannot be imported: {_last_line(str(error))}")]
    findings = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            major, minor = torch.cuda.get_device_capability(index)
            name = torch.cuda.get_device_name(index)
            detail = f"{name} (sm_{major}{minor}), {_free(free, total)}"
            findings.append(Finding("cuda" if index == 0 else f"cuda:{index}", "good", detail))
    else:
        why = (
            "no device found" if torch.version.cuda or torch.version.hip else "this torch is built without it"
        )
        findings.append(Finding("cuda", "absent", why))
    findings.append(_cpu())
    if torch.backends.mps.is_available():
        detail = "Apple GPU, experimental: no test has run on one. device='mps' asks for it"
        findings.append(Finding("mps", "good", detail))
    else:
        findings.append(Finding("mps", "absent", "no Apple GPU"))
    return findings


def _cpu() -> Finding:
    """The CPUs and the memory that the process may use, and those of the machine if it has more."""
    try:
        import psutil
        import torch

        from minipaged.cpu.compiler.thread_limit import at_most_threads
        from minipaged.engine.machine import usable_cpus, usable_memory

        num_cpus, memory = usable_cpus(), usable_memory()
        with at_most_threads(num_cpus):
            num_threads = torch.get_num_threads()
        all_cpus, all_memory = os.cpu_count() or num_cpus, psutil.virtual_memory().total
    except Exception as error:  # as above
        return Finding("cpu", "good", f"CPUs and memory not known: {_last_line(str(error))}")
    detail = f"{num_cpus} cores, up to {num_threads} thread{'s' if num_threads > 1 else ''}"
    detail += f", {_free(memory.free, memory.total)}"
    if num_cpus < all_cpus or memory.total < all_memory:
        machine = f"{all_cpus} cores and {format_binary(all_memory)}"
        detail += f"; the machine has {machine}, of which this process may use no more"
    return Finding("cpu", "good", detail)


def triton() -> Finding:
    """Whether a Triton kernel runs here: compiled on a GPU, else under Triton's interpreter."""
    if package(Package("triton", "triton", required=False)).state != "good":
        where = "" if sys.platform == "linux" else f" (there is no release for {sys.platform})"
        return Finding("triton", "absent", f"not installed{where}; attention takes its other paths")
    on_gpu = any(found.subject == "cuda" and found.state == "good" for found in devices())
    environ = dict(os.environ)
    environ.pop("TRITON_INTERPRET", None)
    if not on_gpu:
        environ["TRITON_INTERPRET"] = "1"
    how = "compiled, on cuda" if on_gpu else "no GPU: under its interpreter, for tests"
    # -P keeps the script's folder off the import path, since our modules `kv` and `main` are in it.
    probe = [sys.executable, "-P", str(Path(__file__).with_name("triton_probe.py"))]
    try:
        done = subprocess.run(
            [*probe, "cuda" if on_gpu else "cpu"],
            env=environ,
            capture_output=True,
            text=True,
            timeout=TRITON_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("triton", "absent", f"a test kernel did not run: {error}")
    if done.returncode != 0:
        why = _last_line(done.stderr) or f"wrong result, or exit code {done.returncode}"
        return Finding("triton", "absent", f"a test kernel failed ({how}): {why}")
    return Finding("triton", "good", f"a test kernel ran ({how})")


def models() -> list[Finding]:
    """The built-in models, and where each is. It fetches nothing."""
    try:
        from minipaged.loading.locations import BUILT_IN, locate

        found = {name: locate(name) for name in BUILT_IN}
    except Exception as error:  # as above
        return [Finding("models", "absent", f"cannot be looked for: {_last_line(str(error))}")]
    findings = []
    for name, location in found.items():
        if location is None:
            findings.append(Finding(name, "absent", "not on this machine; fetched when first used"))
        else:
            findings.append(Finding(name, "good", f"{location.origin}: {location.path}"))
    return findings


def folders() -> list[Finding]:
    """Where fetched models are kept."""
    findings = []
    for subject, find in (("minipaged's cache", _own_cache), ("the hub's cache", _hub_cache)):
        try:
            path = find()
        except Exception as error:  # as above
            findings.append(Finding(subject, "absent", f"not known: {_last_line(str(error))}"))
            continue
        if path.is_dir():
            findings.append(Finding(subject, "good", str(path)))
        else:
            findings.append(Finding(subject, "absent", f"{path}, not there yet"))
    return findings


def _own_cache() -> Path:
    from minipaged.loading.smollm2_wheel import cache_folder

    return cache_folder()


def _hub_cache() -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def _free(free: int, total: int) -> str:
    return f"{format_binary(free)} of {format_binary(total)} free"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]
