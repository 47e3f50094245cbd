"""Contestants: the engines that are compared, each with its script, its environment and its model format."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import minipaged

ModelFormat = Literal["folder", "gguf"]
PeerName = Literal["hf", "hf-cb", "vllm", "vllm-tuned", "llama.cpp"]
PEER_NAMES: tuple[PeerName, ...] = get_args(PeerName)
OURS = "minipaged"

PYTHON_OF: dict[PeerName, str] = {
    "hf": "hf",
    "hf-cb": "hf",
    "vllm": "vllm",
    "vllm-tuned": "vllm",
    "llama.cpp": "llama.cpp",
}
"""For each peer, the name under which the user gives its Python interpreter."""

_SCRIPTS = Path(__file__).parent / "peers"
_SCRIPT_OF: dict[PeerName, str] = {
    "hf": "run_hf_generate.py",
    "hf-cb": "run_hf_continuous.py",
    "vllm": "run_vllm.py",
    "vllm-tuned": "run_vllm.py",
    "llama.cpp": "run_llama_cpp.py",
}
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_PRELOADED = ("libtcmalloc*.so*", "libiomp5.so")


@dataclass(frozen=True)
class Contestant:
    """An engine that is measured.

    Attributes:
        name: the engine's name in the table.
        script: the script that its process runs; `peers/serve_runs.py` describes the answers.
        python: the Python interpreter of the environment in which the engine is installed.
        model_format: the format of the model that the engine loads.
        environment: environment variables that are added to those of this process.
    """

    name: str
    script: Path
    python: str
    model_format: ModelFormat = "folder"
    environment: Mapping[str, str] = field(default_factory=dict)


def our_engine(threads: int) -> Contestant:
    """This package, run by this interpreter from the folder in which it lies."""
    package_folder = str(Path(minipaged.__file__).parents[1])
    environment = _environment(threads) | {"PYTHONPATH": package_folder}
    return Contestant(OURS, _SCRIPTS / "run_minipaged.py", sys.executable, environment=environment)


def peer(name: PeerName, threads: int, python: str = sys.executable) -> Contestant:
    """Another engine.

    Args:
        name: the engine's name.
        threads: number of threads. `vllm` chooses and binds its threads by default; `vllm-tuned` is told to
            use this number.
        python: the interpreter of the environment in which the engine is installed.
    """
    environment = _environment(threads)
    if name == "vllm-tuned":
        environment |= _tuned_vllm(threads, Path(python))
    return Contestant(
        name=name,
        script=_SCRIPTS / _SCRIPT_OF[name],
        python=python,
        model_format="gguf" if name == "llama.cpp" else "folder",
        environment=environment,
    )


def available_cpus() -> list[int]:
    """The numbers of the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _environment(threads: int) -> dict[str, str]:
    offline = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": "", "LD_PRELOAD": ""}
    return offline | dict.fromkeys(_THREAD_VARIABLES, str(threads))


def _tuned_vllm(threads: int, python: Path) -> dict[str, str]:
    """The settings that vLLM's CPU manual recommends: bound threads, another allocator, Intel's OpenMP."""
    libraries = ":".join(str(path) for path in _libraries(python.parent.parent))
    return {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, available_cpus()[:threads])),
        "LD_PRELOAD": libraries,
        "BENCH_PRELOADED": libraries,  # for the record, since vLLM changes LD_PRELOAD
    }


def _libraries(environment: Path) -> list[Path]:
    """The libraries of `_PRELOADED` that are installed in the environment or in the system."""
    folders = [environment / "lib", *sorted(Path("/usr/lib").glob("*-linux-gnu")), Path("/usr/lib64")]
    found: list[Path] = []
    for pattern in _PRELOADED:
        candidates = [path for folder in folders for path in sorted(folder.glob(pattern))]
        found += candidates[:1]
    return found
