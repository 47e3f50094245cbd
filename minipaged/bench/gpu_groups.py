"""The parts of `minipaged bench gpu`, in groups. Each group runs in its own process.

After a kernel reads an invalid address, its process can no longer use the GPU. A kernel that hangs never
returns. So each group gets its own process and a time limit. If the process fails or is ended, the
results that it had already written are kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from minipaged.bench.gpu_part import PartRecord

LOG_LINES = 30


@dataclass(frozen=True)
class Group:
    """Parts that run in one process.

    Attributes:
        name: the group's name.
        module: a module with `make_parts(device, *, rehearse)`, which returns the parts in the order of
            `parts`.
        seconds: the group's time limit. All groups together stay below 8 minutes. A rehearsal has no limit.
        parts: the names of the parts.
    """

    name: str
    module: str
    seconds: float
    parts: tuple[str, ...]


KERNEL_PARTS = ("correctness", "far blocks", "copy bandwidth", "decode", "price of paging", "block sizes")
KERNEL_PARTS += ("prefill",)
ENGINE_PARTS = ("graphs as eager", "engine, graphs", "engine, eager", "steps, graphs", "steps, eager")
GROUPS = (
    Group("kernels", "minipaged.bench.gpu_kernels", 130, KERNEL_PARTS),
    Group("engine", "minipaged.bench.gpu_engine", 160, ENGINE_PARTS),
    Group("peer", "minipaged.bench.gpu_peer", 100, ("transformers",)),
    Group("ladder", "minipaged.bench.gpu_ladder", 70, ("ladder",)),
)


def run_group(group: Group, *, rehearse: bool) -> list[PartRecord]:
    """Run a group in a new process.

    Returns:
        A record for each part of the group, including parts that were not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "records.json"
        command = [sys.executable, "-m", "minipaged.bench.gpu_child", group.name, str(out)]
        try:
            done = subprocess.run(
                command + ["--rehearse"] * rehearse,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=None if rehearse else group.seconds,
                check=False,
            )
            why, log = f"its process ended with exit code {done.returncode}", done.stderr
        except subprocess.TimeoutExpired as error:
            why, log = "out of time", error.stderr
        records = read_records(out)
    tail = "\n".join((log or b"").decode(errors="replace").splitlines()[-LOG_LINES:])
    for name in group.parts[len(records) :]:
        records.append(PartRecord(name, 0.0, f"no result: {why}", True, [], tail))
    return records


def read_records(path: Path) -> list[PartRecord]:
    """The records that a group's process has written. The list is empty if it wrote none."""
    if not path.is_file():
        return []
    try:
        return [PartRecord(**each) for each in json.loads(path.read_text(encoding="utf-8"))]
    except json.JSONDecodeError:  # the process was ended while it wrote the file
        return []
