"""Fig. 12, 14, 16 and 17: the rates that the systems sustain.

The rate of a system is the rate of its answers with a queue that is never empty. At any higher arrival rate,
the queue and the latency grow without end. The paper compares rates at equal latencies, just before that
happens. Fig. 12 does so as well, for one of its plots.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minipaged.sim.lengths import ALPACA, SHAREGPT
from minipaged.sim.paper.comparison import Comparison, PaperFigure, exactly
from minipaged.sim.paper.latency import rate_at_latency
from minipaged.sim.paper.setting import PaperModel, Setting
from minipaged.sim.timed_request import TimedRequest

_MODELS: tuple[PaperModel, ...] = ("OPT-13B", "OPT-66B", "OPT-175B")
_PEAKS = (
    "The absolute rates are upper bounds, since the steps take the time of a datasheet's peaks. Try "
    "--efficiency 0.5: both systems of a ratio become slower together."
)


def fig12(setting: Setting) -> PaperFigure:
    """Fig. 12: single sequences, three models and two data sets."""
    rows: list[Comparison] = []
    for lengths, quoted in (
        (
            SHAREGPT,
            {
                "orca-oracle": (1.7, 2.7),
                "orca-pow2": None,
                "orca-max": (2.7, 8.0),
                "fastertransformer": (1, 22),
            },
        ),
        (ALPACA, {"orca-oracle": None, "orca-pow2": None, "orca-max": None, "fastertransformer": None}),
    ):
        # Alpaca's requests are short, so more of them are needed for the same number of tokens.
        count = setting.num_requests if lengths is SHAREGPT else 3 * setting.num_requests
        for model in _MODELS:
            best = setting.full("vllm", model, setting.drawn(lengths), num_requests=count)
            rows.append(Comparison(f"{model}, {lengths.name}: vllm, requests/s", best.requests_per_second))
            for name, paper in quoted.items():
                rate = setting.full(
                    name, model, setting.drawn(lengths), num_requests=count
                ).requests_per_second
                what = f"{model}, {lengths.name}: vllm / {name}"
                rows.append(Comparison(what, best.requests_per_second / rate, paper))
    rows += _at_equal_latency(setting)
    return PaperFigure(
        name="fig12",
        title="Sustained request rates, single sequences",
        rows=tuple(rows),
        remarks=(
            _PEAKS,
            "The paper gives a range over its three models on ShareGPT, and curves only on Alpaca.",
            "OPT-175B gains less here than the paper's range: its full KV cache takes nearly as long to read "
            "as its weights (283 GB and 349 GB), so a larger batch makes longer steps.",
            "Equal latency: ten times that of a request alone, per output token.",
            "FasterTransformer answers a batch when its longest request ends. Its padding is not counted, so "
            "the real one is slower.",
        ),
    )


def _at_equal_latency(setting: Setting) -> list[Comparison]:
    """The paper's own comparison, for OPT-13B and ShareGPT."""
    alone = setting.at_rate("vllm", "OPT-13B", SHAREGPT, 0.01, num_requests=20).normalized_latency
    rates = {
        name: rate_at_latency(setting, name, "OPT-13B", SHAREGPT, 10 * alone)
        for name in ("vllm", "orca-oracle", "orca-max", "fastertransformer")
    }
    quoted = {"orca-oracle": (1.7, 2.7), "orca-max": (2.7, 8.0), "fastertransformer": (1.0, 22.0)}
    return [
        Comparison(f"OPT-13B, ShareGPT, equal latency: vllm / {name}", rates["vllm"] / rates[name], paper)
        for name, paper in quoted.items()
    ]


def fig14(setting: Setting) -> PaperFigure:
    """Fig. 14, parallel sampling: OPT-13B and Alpaca."""
    rows = []
    for num_samples in (1, 2, 4, 6):
        ours, oracle = (
            setting.full(name, "OPT-13B", setting.drawn(ALPACA, num_samples=num_samples)).requests_per_second
            for name in ("vllm", "orca-oracle")
        )
        quoted = exactly(1.3) if num_samples == 1 else None
        what = f"{num_samples} samples" if num_samples > 1 else "basic sampling"
        rows.append(Comparison(f"{what}: vllm / orca-oracle", ours / oracle, quoted))
    return PaperFigure(
        name="fig14",
        title="Parallel sampling, OPT-13B, lengths like Alpaca's: sustained request rates",
        rows=tuple(rows),
        remarks=(
            "The paper compares at equal latency, and this compares full queues; Fig. 12 has both.",
            "Beam search, for which the paper has 2.3 at width 6, is not simulated: which beams survive "
            "depends on a real model's probabilities.",
            "At most 256 sequences run at once. With samples, this limit and not the memory ends the batch "
            "of vLLM on these short requests.",
        ),
    )


def fig16(setting: Setting) -> PaperFigure:
    """Fig. 16: a shared prefix, Llama-13B."""
    rows = []
    for name, num_tokens, paper in (("one-shot", 80, 1.67), ("five-shot", 341, 3.58)):
        ours, oracle = (
            setting.full(
                system, "Llama-13B", setting.drawn(ALPACA, num_prefix_tokens=num_tokens)
            ).requests_per_second
            for system in ("minipaged", "orca-oracle")
        )
        what = f"prefix of {num_tokens} tokens ({name}): minipaged / orca-oracle"
        rows.append(Comparison(what, ours / oracle, exactly(paper)))
    return PaperFigure(
        name="fig16",
        title="A shared prefix (translation), Llama-13B: sustained request rates",
        rows=tuple(rows),
        remarks=(
            "The paper does not give the lengths of the sentences. Alpaca's lengths stand in for them, and "
            "the gain depends on them.",
            "The prefix is found by its hash, as in chapter 8. The paper's vLLM was told of it.",
        ),
    )


def fig17(setting: Setting) -> PaperFigure:
    """Fig. 17: chat, where every prompt has the maximum length of 1,024 tokens."""
    rates = {
        name: setting.full(name, "OPT-13B", _chat(setting)).requests_per_second
        for name in ("vllm", "orca-oracle", "orca-pow2", "orca-max")
    }
    rows = [
        Comparison(f"vllm / {name}", rates["vllm"] / rate, exactly(2.0) if name == "orca-oracle" else None)
        for name, rate in rates.items()
        if name != "vllm"
    ]
    return PaperFigure(
        name="fig17",
        title="Chat, OPT-13B: sustained request rates",
        rows=tuple(rows),
        remarks=(
            "Assumed: every conversation is longer than 1,024 tokens, so that each prompt is its last 1,024; "
            "outputs are like ShareGPT's, 1,024 at most. Nothing is kept from one turn to the next.",
            "The memory holds 7 regions of 2,048 slots, or about 12 requests of 1,024 tokens and half an "
            "output: a gain of 1.7 at most. Both systems compute the same prompts, so it is less.",
            "A prompt of 1,024 tokens with any output takes a buddy of 2,048 slots: the three Orcas are one.",
        ),
    )


def _chat(setting: Setting) -> Iterator[TimedRequest]:
    rng = np.random.default_rng(setting.seed)
    while True:
        for each in SHAREGPT.draw(1024, rng):
            yield TimedRequest(0.0, 1024, min(each.num_output_tokens, 1024))
