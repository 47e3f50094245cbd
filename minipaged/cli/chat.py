"""`minipaged chat`: talk to a model. Each turn shows how many tokens came from the prefix cache."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from minipaged.cli.engine_options import add_engine_arguments, engine_options, fetch_model
from minipaged.cli.interrupt import interruptible
from minipaged.cli.sampling_options import add_sampling_arguments, in_words, sampling_params
from minipaged.cli.streams import remark
from minipaged.cli.tracing import add_trace_arguments, tracing
from minipaged.errors import MinipagedError, PromptError
from minipaged.sampling.params import SamplingParams
from minipaged.view.printable import printable

if TYPE_CHECKING:
    from minipaged.cli.conversation import Conversation
    from minipaged.engine.llm_engine import LLMEngine
    from minipaged.engine.outputs import RequestOutput
    from minipaged.events import Observer
    from minipaged.sampling.defaults import SamplingDefaults

COMMANDS = "/reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer"

OWN = SamplingParams(temperature=0.2, top_p=0.9, max_tokens=256)
"""The sampling settings that neither an option nor the model's generation_config gives."""

ANSWER_SHARE = 4
"""A quarter of max_model_len is reserved for the answer, or --max-tokens if that is less."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged chat`."""
    parser.add_argument("--system", metavar="TEXT", help="a message to the model that comes before all turns")
    add_sampling_arguments(parser, OWN, model_goes_first=True)
    add_engine_arguments(parser, model="smollm2-135m")
    add_trace_arguments(parser)
    parser.description = (
        f"{parser.description} Commands: {COMMANDS}. If a conversation outgrows max_model_len, its oldest "
        "turns are dropped, and the command says so."
    )


def run(args: argparse.Namespace) -> int:
    """Talk until the input ends. Raises `MinipagedError` if the model cannot chat."""
    sampling_params(args, OWN)  # a bad option is refused before the model is loaded
    fetch_model(args)
    with tracing(args, "chat") as observer:
        _talk(args, observer)
    return 0


def _talk(args: argparse.Namespace, observer: Observer | None) -> None:

    from minipaged.cli.conversation import Conversation
    from minipaged.config import EngineConfig
    from minipaged.engine.llm_engine import LLMEngine

    options = engine_options(args)
    # Requests run one at a time, so the batch has one sequence. The default pool is sized for that.
    options.setdefault("max_num_seqs", 1)
    engine = LLMEngine(EngineConfig(args.model, **options), observer=observer)
    tokenizer = engine.model.tokenizer
    if tokenizer is None:
        raise PromptError(f"chat needs text, and {args.model} came without a tokenizer")
    conversation = Conversation(tokenizer, args.system)
    remark(str(engine.memory_plan))
    remark(COMMANDS)
    params = sampling_params(args, _with_models_values(engine.sampling_defaults))
    remark(f"sampling: {in_words(params)}")
    if not conversation.has_template:
        remark(
            f"{args.model} has no chat template: it continues a plain transcript, and may not answer at all"
        )
    params = replace(params, stop=[*params.stop_strings, *conversation.stop])
    _Chat(engine, conversation, params).run()


def _with_models_values(defaults: SamplingDefaults) -> SamplingParams:
    """The command's own values, overridden by those in the model's files.

    The model's files do not decide how long an answer may be.
    """
    params = defaults.params()
    named = {name: getattr(params, name) for name in defaults.named if name != "max_tokens"}
    return replace(OWN, **named)


class _Chat:
    """The loop of the chat, which reads a line and streams an answer."""

    def __init__(self, engine: LLMEngine, conversation: Conversation, params: SamplingParams) -> None:
        self._engine = engine
        self._conversation = conversation
        self._params = params
        self._num_turns = 0

    def run(self) -> None:
        while (line := _read_line()) is not None:
            message = line.strip()
            if message == "/exit":
                return
            if message == "/reset":
                self._conversation.reset()
                remark("the conversation is forgotten; its blocks stay cached until the pool reuses them")
            elif message.startswith("/"):
                remark(f"there is no command {message.split()[0]!r}: {COMMANDS}")
            elif message:
                self._turn(message)

    def _turn(self, message: str) -> None:
        self._conversation.ask(message)
        try:
            output, seconds = self._answer()
        except MinipagedError as error:
            self._conversation.take_back()
            remark(f"minipaged: {error}")
            return
        self._report(output, seconds)
        answer = output.outputs[0]
        if answer.token_ids:
            self._conversation.answer(answer.text)
        else:
            self._conversation.take_back()
            remark("the answer was empty; the conversation is as it was before the message")

    def _answer(self) -> tuple[RequestOutput, float]:
        """Stream one answer to stdout. Return the answer and the time that it took, in seconds."""
        engine = self._engine
        limit = engine.max_model_len
        room = min(self._params.max_tokens or limit, max(1, limit // ANSWER_SHARE))
        prompt = self._conversation.fit(limit - room)
        if prompt.num_dropped:
            turns = "turn" if prompt.num_dropped == 1 else f"{prompt.num_dropped} turns"
            remark(f"the conversation outgrew max_model_len={limit:,}: dropped the oldest {turns}")
        request_id = f"turn-{self._num_turns}"
        self._num_turns += 1
        stream = _Stream()
        began = time.monotonic()
        with interruptible() as interrupted:
            engine.add_request(request_id, {"prompt_token_ids": prompt.token_ids}, self._params)
            output: RequestOutput | None = None
            while output is None or not output.finished:
                if interrupted():
                    output = engine.abort_request(request_id)
                    assert output is not None
                else:
                    output = next(iter(engine.step()), output)
                if output is not None:
                    stream.show(output.outputs[0].text)
        seconds = time.monotonic() - began
        stream.end()
        return output, seconds

    def _report(self, output: RequestOutput, seconds: float) -> None:
        answer = output.outputs[0]
        num_tokens, num_prompt = len(answer.token_ids), len(output.prompt_token_ids)
        rate = num_tokens / max(seconds, 1e-9)
        remark(
            f"[{num_tokens} tokens, {rate:.1f} tokens/s | prompt {num_prompt:,} tokens, "
            f"{output.num_cached_tokens:,} of them from the prefix cache]"
        )
        if answer.finish_reason == "abort":
            reason = f"by an error: {answer.stop_reason}" if answer.stop_reason else "by Ctrl-C"
            remark(f"[stopped {reason}]")
        elif answer.finish_reason == "length":
            full = num_prompt + num_tokens >= self._engine.max_model_len
            limit = f"max_model_len={self._engine.max_model_len:,}" if full else f"--max-tokens {num_tokens}"
            remark(f"[cut off at {limit}]")


class _Stream:
    """Prints the new part of a growing text."""

    def __init__(self) -> None:
        self._num_shown = 0

    def show(self, text: str) -> None:
        new = text[self._num_shown :]
        self._num_shown = len(text)
        sys.stdout.write(printable(new, keep="\n\t"))
        sys.stdout.flush()

    def end(self) -> None:
        print(flush=True)


def _read_line() -> str | None:
    """The user's next line; `None` at the end of the input."""
    if sys.stdin is None:  # the process was started without stdin
        return None
    try:
        if sys.stdin.isatty() and sys.stdout.isatty():
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  (line editing and history for input)

            return input("\n> ")
        return sys.stdin.readline() or None
    except EOFError:
        print(file=sys.stderr)  # move past the prompt's line
        return None
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise
    except UnicodeDecodeError as error:
        raise PromptError(f"stdin is not {error.encoding} text, from byte {error.start} on") from None
