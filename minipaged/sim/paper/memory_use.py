"""Fig. 2 and Fig. 13: what the KV memory is used for, and how many requests it holds."""

from __future__ import annotations

from minipaged.sim.lengths import ALPACA, SHAREGPT
from minipaged.sim.paper.comparison import Comparison, PaperFigure, exactly
from minipaged.sim.paper.setting import Setting
from minipaged.sim.systems import find_system

_ORCA = {
    "orca-max": (20.4, 13.3, 57.3, 8.9),
    "orca-pow2": (26.8, 17.9, 13.6, 41.6),
    "orca-oracle": (38.2, 25.2, 0.0, 36.6),
}
"""Paper, Fig. 2: token states, reservation, internal fragmentation, external fragmentation and others, in
%."""

_USES = ("token states", "reservation", "internal", "external and other")


def fig2(setting: Setting) -> PaperFigure:
    """Fig. 2: shares of the KV memory, OPT-13B and ShareGPT."""
    rows: list[Comparison] = []
    for name, quoted in _ORCA.items():
        seen = _uses(setting, name)
        for use, ours, paper in zip(_USES, seen, quoted, strict=True):
            rows.append(Comparison(f"{find_system(name).title}: {use}, %", ours, exactly(paper)))
    rows.append(Comparison("vLLM: token states, %", _uses(setting, "vllm")[0], exactly(96.3)))
    return PaperFigure(
        name="fig2",
        title="Where the KV memory goes: OPT-13B, lengths like ShareGPT's, a queue that is never empty",
        rows=tuple(rows),
        remarks=(
            "Pow2 reserves prompt + output rounded up to a power of two, 2,048 slots at most. The slots that "
            "the buddy allocator adds when it rounds this up once more count as external, as in the paper.",
            "A batch of ten requests varies much, so a run of a few hundred requests can be many points off. "
            "This one has three times --requests.",
            "For Oracle and Pow2 the paper has some points more of external fragmentation. Only the mean "
            "lengths of its requests are known, and how much rounding wastes depends on the others.",
        ),
    )


def _uses(setting: Setting, system: str) -> tuple[float, float, float, float]:
    """Shares in %, in the order of `_USES`. Slots that are free for a moment count as others."""
    result = setting.full(system, "OPT-13B", setting.drawn(SHAREGPT), num_requests=3 * setting.num_requests)
    memory = {name: 100 * share for name, share in result.memory.items()}
    return (
        memory["token_states"],
        memory["reservation"],
        memory["internal_fragmentation"],
        memory["external_fragmentation"] + memory["free"],
    )


def fig13(setting: Setting) -> PaperFigure:
    """Fig. 13: requests in a batch on average, OPT-13B."""
    rows: list[Comparison] = []
    loads = (
        (SHAREGPT, 2.0, {"orca-max": 7.0, "orca-oracle": 13.62, "vllm": 30.42}),
        (ALPACA, 30.0, {"orca-max": 7.0, "orca-oracle": 72.75, "vllm": 132.44}),
    )
    for lengths, rate, quoted in loads:
        for name, paper in quoted.items():
            batch = setting.at_rate(name, "OPT-13B", lengths, rate).mean_batch
            what = f"{name}, {lengths.name} at {rate:g} requests/s"
            rows.append(Comparison(what, batch, exactly(paper)))
        for name, paper in quoted.items():
            batch = setting.full(name, "OPT-13B", setting.drawn(lengths)).mean_batch
            what = f"{name}, {lengths.name}, a full queue"
            rows.append(Comparison(what, batch, exactly(paper)))
    return PaperFigure(
        name="fig13",
        title="Requests in a batch, on average: OPT-13B",
        rows=tuple(rows),
        remarks=(
            "With a full queue, the batch is limited by memory alone. At the paper's rates, a system that "
            "keeps up has the smaller batch the faster its steps are: requests in the batch = rate × time in "
            "the batch.",
            "Our steps take the time of a datasheet's peaks, so vLLM keeps up with rates at which the "
            "paper's, on slower steps, had nearly filled its memory.",
        ),
    )
