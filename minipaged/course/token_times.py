"""Measure and draw how long a token takes at the engine's stages, by the length of its sequence."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

from minipaged.config import EngineConfig
from minipaged.course.figures import COLOURS, STYLES, figure, show
from minipaged.engine.llm_engine import LLMEngine
from minipaged.loading.loader import LoadedModel
from minipaged.sampling.params import SamplingParams

_NUM_TOKENS = 6  # per measurement; the first token, which includes the prompt, does not count
_MARKERS = "os^D"


def seconds_per_token(
    stages: Sequence[int], lengths: Sequence[int], loaded: LoadedModel
) -> dict[int, list[float]]:
    """Measure the seconds per token at each stage, for a prompt of each length: the median of five tokens.

    The stages take turns, so that other load on the machine affects all of them.
    """
    engines = {stage: _engine(stage, loaded) for stage in stages}
    times: dict[int, list[float]] = {stage: [] for stage in stages}
    for length in (lengths[0], *lengths):  # the first run is a warm-up
        for stage, engine in engines.items():
            times[stage].append(_seconds(engine, length))
    return {stage: measured[1:] for stage, measured in times.items()}


def _engine(stage: int, loaded: LoadedModel) -> LLMEngine:
    return LLMEngine(EngineConfig.at_stage(stage, dtype="float32", device="cpu", num_blocks=80), loaded)


def _seconds(engine: LLMEngine, length: int) -> float:
    greedy = SamplingParams(temperature=0.0, max_tokens=_NUM_TOKENS, ignore_eos=True)
    engine.add_request(str(length), [1 + i % 200 for i in range(length)], greedy)
    times = []
    while engine.has_unfinished_requests():
        begin = time.perf_counter()
        engine.step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def draw_token_times(
    title: str, lengths: Sequence[int], times: Mapping[int, Sequence[float]], names: Mapping[int, str]
) -> None:
    """Draw milliseconds per token over the length of the sequence, with one line for each stage.

    Args:
        title: what the figure shows, as a sentence.
        lengths: tokens in the sequence.
        times: seconds per token, for each stage and length.
        names: the stages' names, written on the lines.
    """
    made, ax = figure(title, "tokens in the sequence", "milliseconds per token")
    highest = 1e3 * max(max(measured) for measured in times.values())
    for number, (stage, measured) in enumerate(times.items()):
        line = f"{_MARKERS[number]}{STYLES[number]}"
        ax.plot(lengths, [1e3 * each for each in measured], line, color=COLOURS[5 - number])
        y = 1e3 * measured[-1]
        # A line that ends at the top has its name to the left of its end. Other names are above the line.
        if y > 0.9 * highest:
            ax.text(lengths[-1] - 0.06 * lengths[-1], y, names[stage], ha="right", va="top")
        else:
            ax.text(lengths[-1], y + 0.04 * highest, names[stage], ha="right")
    ax.set_ylim(bottom=0)
    ends = "; ".join(
        f"{names[stage]}: {1e3 * each[0]:.2g} ms at {lengths[0]} tokens, {1e3 * each[-1]:.2g} ms at "
        f"{lengths[-1]}"
        for stage, each in times.items()
    )
    show(made, f"Lines of milliseconds per token over the length of the sequence. {ends}.")
