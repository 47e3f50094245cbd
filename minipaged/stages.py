"""The stages of the course: the engine after each chapter, as settings of the one engine.

Each chapter adds one thing:

| stage | what is new                              | KV layout  | batching   |
|-------|------------------------------------------|------------|------------|
| 1     | nothing yet: no cache, one by one        | none       | static     |
| 2     | a contiguous cache, reserved to the end  | contiguous | static     |
| 3     | blocks and block tables                  | paged      | static     |
| 4     | sharing by reference count, copy on write | paged     | static     |
| 5     | the fast attention of the device         | paged      | static     |
| 6     | continuous batching                      | paged      | continuous |
| 7     | preemption: admit what fits now          | paged      | continuous |
| 8     | prefix caching                           | paged      | continuous |

With the reference attention of the stages 1 to 4 the model runs in PyTorch, as it is read in `model/`.

Every stage gives the same greedy tokens. A prompt longer than the budget of one step is computed in
chunks at every stage; from stage 6 on its chunks run beside requests that came earlier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minipaged.errors import ConfigError

if TYPE_CHECKING:
    from minipaged.config import EngineOptions

NUM_STAGES = 8


def stage_options(stage: int) -> EngineOptions:
    """The settings of a stage, for `LLM(model, **stage_options(3))`, or `EngineConfig.at_stage(3)`.

    Raises:
        ConfigError: no such stage.
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
        del options["enable_prefix_caching"]  # on by itself, where blocks are shared
    return options
