"""The GPU check. It tests the kernels' results, and measures how near they come to the hardware's limits.

One run needs no network and less than 8 minutes. It writes all figures to a JSON file after each group
of parts, and prints a short table at the end. `rehearse=True` runs the same code on a CPU at toy sizes.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

from minipaged.bench.gpu_groups import GROUPS, Group, run_group
from minipaged.bench.gpu_part import PartRecord
from minipaged.errors import ConfigError
from minipaged.triton_kernels.setup import prepare_triton


def run_gpu_check(out: Path, *, rehearse: bool, groups: Sequence[Group] = GROUPS) -> list[PartRecord]:
    """Run all parts, and write the record.

    Raises:
        ConfigError: there is no GPU for a run that is not a rehearsal, or Triton is missing.
        OSError: the file cannot be written.
    """
    if not rehearse and not torch.cuda.is_available():
        raise ConfigError("no GPU here: --rehearse runs the same parts at toy sizes on the CPU")
    device = torch.device("cpu" if rehearse else "cuda")
    prepare_triton(device)
    machine = describe_machine(device)
    records: list[PartRecord] = []
    _write(out, machine, rehearse, records)  # fails now, not at the end, if the path cannot be written
    for group in groups:
        records += run_group(group, rehearse=rehearse)
        _write(out, machine, rehearse, records)
    return records


def describe_machine(device: torch.device) -> dict[str, str]:
    """The device, and the versions of the software that computes."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return {
        "device": name,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "triton": version("triton"),
        "transformers": version("transformers"),
    }


def format_table(records: Sequence[PartRecord]) -> str:
    """Format a table with a line for each part."""
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
