"""Runs one group of parts of `minipaged bench gpu` in its own process.

python -m minipaged.bench.gpu_child GROUP RECORDS.json [--rehearse]
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Protocol, cast

import torch

from minipaged.bench.gpu_groups import GROUPS
from minipaged.bench.gpu_part import PartRecord, Parts, run_parts
from minipaged.triton_kernels.setup import prepare_triton

SHARE_TO_BEGIN = 0.9
"""After this share of a group's time, no further part begins."""


class GroupModule(Protocol):
    """The interface of a module that `Group.module` names."""

    def make_parts(self, device: torch.device, *, rehearse: bool) -> Parts: ...


def main() -> None:
    """Run the parts. After each one, write the records so far."""
    start = time.monotonic()
    parser = argparse.ArgumentParser()
    parser.add_argument("group")
    parser.add_argument("out", type=Path)
    parser.add_argument("--rehearse", action="store_true")
    args = parser.parse_args()
    group = next(each for each in GROUPS if each.name == args.group)
    device = torch.device("cpu" if args.rehearse else "cuda")
    prepare_triton(device)
    module = cast(GroupModule, importlib.import_module(group.module))

    def write(records: Sequence[PartRecord]) -> None:
        unfinished = args.out.with_suffix(".new")
        unfinished.write_text(json.dumps([asdict(record) for record in records]), encoding="utf-8")
        os.replace(unfinished, args.out)  # so `out` is always a complete file

    run_parts(
        module.make_parts(device, rehearse=args.rehearse),
        deadline=math.inf if args.rehearse else start + SHARE_TO_BEGIN * group.seconds,
        after_each=write,
    )


if __name__ == "__main__":
    main()
