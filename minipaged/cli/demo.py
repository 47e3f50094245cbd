"""`minipaged demo`: serve eight prompts through a small pool, and watch its blocks."""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from minipaged.cli.engine_options import add_engine_arguments, engine_options, fetch_model
from minipaged.cli.streams import remark, stdout_console
from minipaged.cli.tracing import add_trace_arguments, tracing

if TYPE_CHECKING:
    from minipaged.cli.demo_show import Show
    from minipaged.cli.demo_workload import DemoWorkload
    from minipaged.engine.llm_engine import LLMEngine
    from minipaged.engine.outputs import RequestOutput
    from minipaged.events import Observer

DELAY = 0.05
"""Minimum duration of a step in the live view, in seconds."""

REPETITION_PENALTY = 1.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged demo`."""
    parser.add_argument(
        "--delay",
        type=seconds,
        metavar="SECONDS",
        default=DELAY,
        help=f"minimum duration of a step in the live view (default {DELAY})",
    )
    parser.add_argument(
        "--plain", action="store_true", help="lines of text instead of the live view, even in a terminal"
    )
    add_engine_arguments(parser, model="tiny")
    add_trace_arguments(parser)
    parser.description = (
        f"{parser.description} The demo chooses sizes that are not given, such that prefixes are shared and "
        "the pool runs out of free blocks. Each token is the likeliest one, with a repetition penalty of "
        f"{REPETITION_PENALTY}; the model's generation_config is not used."
    )


def seconds(text: str) -> float:
    """A number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def run(args: argparse.Namespace) -> int:
    """Serve the prompts, show the steps, and print a summary.

    Raises:
        MinipagedError: the model or the settings cannot be used.
    """
    from minipaged.cli.demo_report import print_report
    from minipaged.cli.demo_show import LiveShow, PlainShow
    from minipaged.view.labels import Labels

    console, labels = stdout_console(), Labels()
    live = console.is_terminal and not console.is_dumb_terminal and not args.plain
    show = LiveShow(console, labels, args.delay) if live else PlainShow(console, labels)
    with tracing(args, "demo") as observer:
        engine, workload = prepare(args, observer)
        remark(str(engine.memory_plan))
        compile_loops(engine)
        with show:
            outputs = serve(engine, workload, show)
    print_report(console, engine, workload, outputs, show)
    return 0


def prepare(args: argparse.Namespace, observer: Observer | None = None) -> tuple[LLMEngine, DemoWorkload]:
    """Load the model and tokenise the prompts. Choose the missing sizes to fit the prompts."""
    from minipaged.cli.demo_pool import choose_block_size, choose_num_blocks
    from minipaged.cli.demo_workload import make_workload
    from minipaged.config import EngineConfig
    from minipaged.engine.assembly import load_configured_model
    from minipaged.engine.llm_engine import LLMEngine
    from minipaged.engine.memory_plan import plan_memory
    from minipaged.errors import ConfigError
    from minipaged.kv.size import max_model_len_that_fits

    fetch_model(args)
    config = EngineConfig(args.model, **engine_options(args))
    if config.kv_layout != "paged":
        raise ConfigError(
            f"the demo shows blocks, and an engine with kv_layout={config.kv_layout!r} has none: "
            "choose a stage from 3 to 8"
        )
    model = load_configured_model(config)
    longest = model.config.max_position_embeddings
    if isinstance(config.max_model_len, int) and config.max_model_len > 0:
        longest = min(longest, config.max_model_len)
    workload = make_workload(model.tokenizer, model.config.vocab_size, longest)
    if args.block_size is None:
        config = replace(config, block_size=choose_block_size(workload.num_shared_tokens))
    if config.num_blocks is None and config.kv_cache_memory_bytes is None:
        config = replace(config, num_blocks=choose_num_blocks(workload, config))
    else:
        # The pool was given, so the requests must fit into it.
        sized = replace(config, max_model_len="auto")
        plan = plan_memory(sized, model.config, model.decoder.dtype, model.decoder.device)
        longest = min(longest, max_model_len_that_fits(plan.num_blocks, config.block_size))
        workload = make_workload(model.tokenizer, model.config.vocab_size, longest)
    if config.max_model_len is None:
        config = replace(config, max_model_len=workload.longest)
    return LLMEngine(config, model, observer=observer), workload


def compile_loops(engine: LLMEngine) -> None:
    """Serve a short request on another engine, so that the demo's time includes no first-use compilation."""
    from minipaged.engine.llm_engine import LLMEngine
    from minipaged.sampling.params import SamplingParams

    if engine.model.decoder.device.type != "cpu":
        return
    small = replace(engine.config, num_blocks=3, kv_cache_memory_bytes=None, max_model_len=2)
    elsewhere = LLMEngine(small, engine.model)
    elsewhere.add_request("first", {"prompt_token_ids": [0]}, SamplingParams(temperature=0, max_tokens=2))
    while elsewhere.has_unfinished_requests():
        elsewhere.step()


def serve(engine: LLMEngine, workload: DemoWorkload, show: Show) -> list[RequestOutput]:
    """Run all requests to their end. Return their outputs in the order of the requests."""
    from minipaged.sampling.params import SamplingParams

    ids = [f"request-{number}" for number in range(len(workload.requests))]
    for request_id, request in zip(ids, workload.requests, strict=True):
        # Decoding is greedy. min_tokens forbids an earlier end, so the length is fixed. The penalty reduces
        # repetition.
        params = SamplingParams(
            temperature=0,
            repetition_penalty=REPETITION_PENALTY,
            max_tokens=request.max_tokens,
            min_tokens=request.max_tokens,
        )
        engine.add_request(request_id, {"prompt_token_ids": request.token_ids}, params)
    show.begin(engine)
    finished: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests():
        began = time.perf_counter()
        processors = engine.advance()
        step_seconds = time.perf_counter() - began
        for processor in processors:
            if processor.request.is_finished:
                finished[processor.request.request_id] = processor.build()
        show.step(engine, step_seconds)
    return [finished[request_id] for request_id in ids]
