"""The stages of the course. A stage is the engine after a chapter, as settings of the one engine.

Each chapter adds one thing:

| stage | what is new                              | KV layout  | batching   |
|-------|------------------------------------------|------------|------------|
| 1     | no cache yet; one request at a time      | none       | static     |
| 2     | a contiguous cache, reserved in advance  | contiguous | static     |
| 3     | blocks and block tables                  | paged      | static     |
| 4     | sharing by reference count, copy on write | paged     | static     |
| 5     | the fast attention of the device         | paged      | static     |
| 6     | continuous batching                      | paged      | continuous |
| 7     | preemption: admit what fits now          | paged      | continuous |
| 8     | prefix caching                           | paged      | continuous |

Stages 1 to 4 use the reference attention, and with it the plain PyTorch layers of `minipaged/model/`.

Every stage gives the same greedy tokens. At every stage, a prompt longer than the token budget of a step is
computed in chunks. From stage 6 on, its chunks share steps with requests that are already running.
"""

from __future__ import annotations

from minipaged.errors import ConfigError
from minipaged.options import EngineOptions

NUM_STAGES = 8


def stage_options(stage: int) -> EngineOptions:
    """The settings of a stage. Use them as `LLM(model, **stage_options(3))` or `EngineConfig.at_stage(3)`.

    Raises:
        ConfigError: there is no such stage.
    """
    if isinstance(stage, bool) or not isinstance(stage, int) or not 1 <= stage <= NUM_STAGES:
        raise ConfigError(f"there are the stages 1 to {NUM_STAGES}, not {stage!r:.80}")
    options: EngineOptions = {
        "kv_layout": "none",
        "max_num_seqs": 1,
        "batching": "static",
        "preemption_mode": "never",
        "attention_backend": "reference",
        "enable_prefix_caching": False,
    }
    if stage >= 2:
        del options["max_num_seqs"]
        options["kv_layout"] = "contiguous"
    if stage >= 3:
        options["kv_layout"] = "paged"
        options["fork_mode"] = "copy"
    if stage >= 4:
        options["fork_mode"] = "share"
    if stage >= 5:
        options["attention_backend"] = "auto"
    if stage >= 6:
        options["batching"] = "continuous"
    if stage >= 7:
        options["preemption_mode"] = "recompute"
    if stage >= 8:
        del options["enable_prefix_caching"]  # by default it is on, since blocks are shared
    return options
