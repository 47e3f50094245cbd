"""`minipaged generate PROMPT…`: complete prompts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from minipaged.cli.engine_options import add_engine_arguments, engine_options, fetch_model
from minipaged.cli.sampling_options import add_sampling_arguments, sampling_params
from minipaged.cli.streams import remark, stderr_console, stdout_console
from minipaged.cli.tracing import add_trace_arguments, tracing
from minipaged.errors import PromptError
from minipaged.sampling.params import SamplingParams
from minipaged.view.printable import one_line, printable

if TYPE_CHECKING:
    from minipaged.engine.intake import Prompt
    from minipaged.engine.outputs import CompletionOutput, RequestOutput

EXIT_REQUEST_FAILED = 1

OWN = SamplingParams(temperature=0, max_tokens=64)
"""Settings that give the same text in every run. The model's generation_config does not change them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged generate`."""
    parser.add_argument(
        "prompts",
        metavar="PROMPT",
        nargs="*",
        help="a text to continue; without one, each line of stdin that is not blank is a prompt",
    )
    parser.add_argument("--n", type=int, metavar="N", help="samples of each prompt (default 1)")
    parser.add_argument(
        "--token-ids", action="store_true", help="each PROMPT is a list of token ids, with commas or spaces"
    )
    parser.add_argument(
        "--json", action="store_true", help="print each output as a line of JSON, with its token ids"
    )
    add_sampling_arguments(parser, OWN)
    add_engine_arguments(parser, model="tiny")
    add_trace_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the outputs.

    Raises:
        MinipagedError: the model cannot be loaded, or a prompt cannot be served.
    """
    texts = args.prompts or _read_prompts()
    prompts: list[Prompt] = [parse_token_ids(text) if args.token_ids else text for text in texts]
    params = sampling_params(args, OWN)

    from minipaged.llm import LLM

    fetch_model(args)
    with tracing(args, "generate") as observer:
        llm = LLM(args.model, observer=observer, **engine_options(args))
        if not stderr_console().is_terminal:
            remark(str(llm.engine.memory_plan))  # in a terminal, LLM has shown it
        if params.greedy and (suggested := str(llm.engine.sampling_defaults)):
            remark(f"The likeliest token, always; the model's generation_config suggests {suggested}")
        outputs = llm.generate(prompts, params)
    _say_what_had_no_effect(params)
    _say_what_was_cut_off(outputs, params, llm.engine.max_model_len)
    if args.json:
        _print_json(outputs)
    else:
        _print_texts(outputs, has_text=llm.engine.model.tokenizer is not None)
    return _report_failures(outputs)


def _say_what_had_no_effect(params: SamplingParams) -> None:
    of_draws = {
        "--top-p": params.top_p != 1,
        "--top-k": params.top_k > 0,
        "--min-p": params.min_p > 0,
        "--seed": params.seed is not None,
    }
    given = [name for name, is_given in of_draws.items() if is_given]
    if params.greedy and given:
        remark(f"Nothing is drawn at temperature 0, so {', '.join(given)} had no effect: add --temperature 1")


def _say_what_was_cut_off(
    outputs: Sequence[RequestOutput], params: SamplingParams, max_model_len: int
) -> None:
    asked = params.max_tokens
    samples = [sample for output in outputs for sample in output.outputs]
    cut = [each for each in samples if each.finish_reason == "length" and len(each.token_ids) != asked]
    if cut and asked is not None:
        remark(
            f"{len(cut)} of {len(samples)} outputs ended before --max-tokens: prompt and output together "
            f"have at most max_model_len={max_model_len:,} tokens here"
        )


def parse_token_ids(text: str) -> list[int]:
    """`"1, 2 3"` as `[1, 2, 3]`.

    Raises:
        PromptError: the text contains something other than integers.
    """
    try:
        return [int(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise PromptError(
            f"--token-ids takes integers with commas or spaces between, not {text!r:.80}"
        ) from None


def _read_prompts() -> list[str]:
    if sys.stdin is None or sys.stdin.isatty():
        raise PromptError('no prompt: give one, as in minipaged generate "Once upon a time", or pipe some in')
    try:
        prompts = [line for line in sys.stdin.read().split("\n") if line.strip()]
    except UnicodeDecodeError as error:
        raise PromptError(f"stdin is not {error.encoding} text, from byte {error.start} on") from None
    if not prompts:
        raise PromptError("no prompt: stdin was empty")
    return prompts


def _print_json(outputs: Sequence[RequestOutput]) -> None:
    for number, output in enumerate(outputs):
        for sample in output.outputs:
            record = {
                "prompt_index": number,
                "prompt": output.prompt,
                "index": sample.index,
                "text": sample.text,
                "token_ids": sample.token_ids,
                "finish_reason": sample.finish_reason,
                "stop_reason": sample.stop_reason,
                "num_prompt_tokens": len(output.prompt_token_ids),
                "num_cached_tokens": output.num_cached_tokens,
                "num_preemptions": output.num_preemptions,
            }
            print(json.dumps(record))


def _print_texts(outputs: Sequence[RequestOutput], *, has_text: bool) -> None:
    console = stdout_console()
    several = sum(len(output.outputs) for output in outputs) > 1
    for output in outputs:
        for sample in output.outputs:
            if several:
                prompt = one_line(output.prompt or " ".join(map(str, output.prompt_token_ids)))
                number = f" (sample {sample.index})" if len(output.outputs) > 1 else ""
                console.print(f"--- {_shortened(prompt)}{number}", style="bold", soft_wrap=True)
            text = sample.text if has_text else " ".join(map(str, sample.token_ids))
            # A file or a pipe gets the model's exact text.
            print(printable(text, keep="\n\t") if console.is_terminal else text)


def _shortened(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _report_failures(outputs: Sequence[RequestOutput]) -> int:
    """Say which requests ended in an error. The other requests are not affected."""
    failed: list[tuple[int, CompletionOutput]] = [
        (number, sample)
        for number, output in enumerate(outputs)
        for sample in output.outputs
        if sample.finish_reason == "abort"
    ]
    for number, sample in failed:
        remark(f"prompt {number}, sample {sample.index} ended in an error: {sample.stop_reason}")
    return EXIT_REQUEST_FAILED if failed else 0
