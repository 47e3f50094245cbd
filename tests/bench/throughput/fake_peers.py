"""Contestants that are small scripts. Some work, some fail."""

from __future__ import annotations

import sys
from pathlib import Path

from minipaged.bench.throughput import contestants
from minipaged.bench.throughput.child import Message
from minipaged.bench.throughput.contestants import Contestant

PEERS = Path(contestants.__file__).parent / "peers"

JOB: Message = {
    "model": "nowhere",
    "dtype": "float32",
    "threads": 1,
    "max_model_len": 64,
    "max_num_seqs": 4,
    "kv_cache_bytes": 1024,
    "kv_bytes_per_token": 16,
    "stage": None,
    "warm_up": [{"prompts": [[1]], "max_tokens": [1]}],
}

_SCRIPT = """
import json, os, subprocess, sys, time
sys.path.insert(0, {peers!r})
from serve_runs import Served, serve

print("noise before anything else")

class Fake:
    packages = ("no-such-package",)
    settings = {{"kind": "fake"}}

    def __init__(self, job):
        self.runs = 0
        {on_load}

    def run(self, prompts, max_tokens):
        self.runs += 1
        os.write(1, b"noise of a library\\n")
        outputs = [[len(prompt)] * count for prompt, count in zip(prompts, max_tokens)]
        if self.runs > 1:  # the first is the warm-up
            {on_run}
        return Served(outputs, 0.5)

serve(Fake)
"""


def fake_peer(folder: Path, name: str, *, on_load: str = "pass", on_run: str = "pass") -> Contestant:
    """A contestant whose output tokens are the lengths of the prompts, in half a second by its own clock.

    Args:
        folder: where its script goes.
        name: its name.
        on_load, on_run: statements to run at loading and in each run. `on_run` may change `outputs`.
    """
    script = folder / f"{name}.py"
    script.write_text(_SCRIPT.format(peers=str(PEERS), on_load=on_load, on_run=on_run))
    return Contestant(name, script, sys.executable)
