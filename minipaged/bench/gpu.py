"""The GPU check: are the kernels right, and how near are they to what the memory and the chip can do.

One run needs no network and a few minutes, writes all figures to a JSON file after each part, and
prints a short table last. `rehearse=True` runs the same code on a CPU at toy sizes.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import torch

from minipaged.attention.backend import select_attention
from minipaged.bench import gpu_engine, gpu_kernels
from minipaged.bench.gpu_part import PartRecord, run_parts
from minipaged.errors import ConfigError

MAX_SECONDS = 7 * 60
"""After that no further part is begun."""


def run_gpu_check(out: Path, *, rehearse: bool, max_seconds: float = MAX_SECONDS) -> list[PartRecord]:
    """Run all parts, and write the record.

    Raises:
        ConfigError: there is no GPU and this is no rehearsal, or no Triton.
        OSError: the file cannot be written.
    """
    if not rehearse and not torch.cuda.is_available():
        raise ConfigError("no GPU here: --rehearse runs the same at toy sizes on the CPU")
    device = torch.device("cpu" if rehearse else "cuda")
    kernel_sizes, engine_sizes = (
        (gpu_kernels.REHEARSAL, gpu_engine.REHEARSAL) if rehearse else (gpu_kernels.FULL, gpu_engine.FULL)
    )
    bench = gpu_kernels.KernelBench(select_attention("triton", device), device, kernel_sizes)
    engine_bench = gpu_engine.EngineBench(device, engine_sizes)
    machine = describe_machine(device)

    def write(records: Sequence[PartRecord]) -> None:
        _write(out, machine, rehearse, records)

    write([])  # a path that cannot be written is found now, not at the end
    return run_parts(
        {
            "correctness": bench.correctness,
            "far blocks": bench.far_blocks,
            "copy bandwidth": bench.copy_bandwidth,
            "decode": bench.decode,
            "price of paging": bench.paging,
            "block sizes": bench.block_sizes,
            "prefill": bench.prefill,
            "engine": engine_bench.throughput,
        },
        deadline=time.monotonic() + max_seconds,
        after_each=write,
    )


def describe_machine(device: torch.device) -> dict[str, str]:
    """The device, and the versions that matter."""
    import triton

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return {
        "device": name,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "triton": triton.__version__,
    }


def format_table(records: Sequence[PartRecord]) -> str:
    """A line for each part."""
    lines = [f"{'part':16} {'seconds':>8}  result"]
    for record in records:
        mark = "✗ " if record.failed else ""
        lines.append(f"{record.name:16} {record.seconds:8.1f}  {mark}{record.headline}")
    return "\n".join(lines)


def _write(out: Path, machine: dict[str, str], rehearse: bool, records: Sequence[PartRecord]) -> None:
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rehearsal": rehearse,
        "machine": machine,
        "parts": [asdict(part) for part in records],
    }
    out.write_text(json.dumps(record, indent=1), encoding="utf-8")
