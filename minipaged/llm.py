"""LLM: offline generation, from prompts to texts."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Unpack

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from minipaged.config import EngineConfig
from minipaged.engine.intake import Prompt, TokensPrompt, as_prompt_list
from minipaged.engine.llm_engine import LLMEngine
from minipaged.engine.one_thread import by_one_thread
from minipaged.engine.outputs import BeamSearchOutput, BeamSearchSequence, RequestOutput
from minipaged.errors import EngineBusyError, PromptError, SamplingParamsError
from minipaged.events import Observer
from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.model.tokenizer import ChatMessage
from minipaged.options import EngineOptions
from minipaged.sampling.beam_params import BeamSearchParams
from minipaged.sampling.params import SamplingParams


class LLM:
    """A model, ready to generate.

    >>> llm = LLM("tiny", block_size=16)
    >>> outputs = llm.generate(["Once upon a time"], SamplingParams(temperature=0, max_tokens=32))

    Args:
        model: `"tiny"`, `"smollm2-135m"`, a folder, a `.gguf` file, or a hub id. Or the `Path` of
            a folder or file.
        observer: called with each event of the engine; see `minipaged/events/`.
        options: other fields of `EngineConfig`, as keyword arguments.

    Attributes:
        engine: the `LLMEngine` that does the work.
        one_thread: the guard that lets one thread at a time generate.

    Raises:
        ConfigError: an unknown or invalid option.
        ModelNotFoundError, UnsupportedModelError, WeightsError: the model cannot be loaded.
        ForkedProcessError: the process was forked from one that has made an engine.
    """

    def __init__(
        self,
        model: str | PathLike[str] = "tiny",
        *,
        observer: Observer | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        self._console = Console(stderr=True)
        self._is_watched = self._console.is_terminal or self._console.is_jupyter
        config = EngineConfig(model=model, **options)
        self.engine = LLMEngine(config, observer=observer, progress=self._is_watched)
        self.one_thread = self.engine.one_thread
        self._num_generated = 0
        if self._is_watched:
            self._console.print(str(self.engine.memory_plan), style="dim", highlight=False)
            if defaults := str(self.engine.sampling_defaults):
                note = f"Without sampling_params: {defaults} (the model's generation_config)"
                self._console.print(note, style="dim", highlight=False)

    def get_default_sampling_params(self) -> SamplingParams:
        """The parameters that `generate` and `chat` use if they are given none.

        They are the values of the model's generation_config.json, and neutral values for the parameters
        that are missing there. With the setting `generation_config="vllm"`, all values are neutral.

        Raises:
            SamplingParamsError: a value in the model's files is not possible.
        """
        return self.engine.sampling_defaults.params()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Generate outputs for one or several prompts. The engine batches them.

        Args:
            prompts: a string, a list of token ids, a dict (see `minipaged.engine.intake`), or a list of
                these.
            sampling_params: one object for all prompts, or a list with one for each prompt. The default is
                `get_default_sampling_params()`.
            use_tqdm: whether to show a progress bar in a terminal or a notebook. (The name is vLLM's.)

        Returns:
            One output for each prompt, in their order.

        Raises:
            PromptError, RequestTooLargeError, SamplingParamsError: one of the requests cannot be
                served; the message says which. In this case no request was run.
            EngineBusyError: requests that were added through `engine` are unfinished, or another thread
                is using the engine.
        """
        listed = as_prompt_list(prompts)
        return self._run(listed, self._params_for(listed, sampling_params), use_tqdm)

    def chat(
        self,
        messages: Sequence[ChatMessage] | Sequence[Sequence[ChatMessage]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Answer one conversation, or several.

        Args:
            messages: `{"role": ..., "content": ...}` dicts, or a list of such lists.
            sampling_params: as for `generate`.
            use_tqdm: as for `generate`.

        Raises:
            PromptError: there are no messages, or the model has no tokenizer or no chat template.
        """
        if not isinstance(messages, list | tuple) or not messages:
            raise PromptError(
                'chat needs a list of at least one {"role": ..., "content": ...} message, '
                f"or a list of such lists; not {messages!r:.80}"
            )
        tokenizer = self.engine.model.tokenizer
        if tokenizer is None:
            raise PromptError("chat needs text, and this model came without a tokenizer")
        conversations = [messages] if isinstance(messages[0], dict) else messages
        prompts: list[Prompt] = [
            TokensPrompt(prompt_token_ids=tokenizer.apply_chat_template(conversation))  # pyright: ignore[reportArgumentType]
            for conversation in conversations
        ]
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    def memory_breakdown(self) -> MemoryBreakdown:
        """How the engine's KV memory is used at this moment; see `minipaged.kv.breakdown`.

        Between two calls of `generate`, all of this memory is free.
        """
        return self.engine.memory_breakdown()

    def beam_search(
        self, prompts: Prompt | Sequence[Prompt], params: BeamSearchParams, *, use_tqdm: bool = True
    ) -> list[BeamSearchOutput]:
        """Find the likeliest continuations of one or several prompts.

        The hypotheses and scores are the same as those of transformers'
        `generate(num_beams=..., do_sample=False)`.

        Args:
            prompts: as for `generate`.
            params: how many beams to follow, how far, and how hypotheses are ranked.
            use_tqdm: as for `generate`.

        Returns:
            One output for each prompt, in their order, with `params.beam_width` hypotheses, best first.

        Raises:
            The same errors as `generate`.
        """
        if not isinstance(params, BeamSearchParams):
            raise SamplingParamsError(f"params must be BeamSearchParams, not {params!r:.80}")
        listed = as_prompt_list(prompts)
        outputs = self._run(listed, [params] * len(listed), use_tqdm)
        return [self._beam_search_output(output) for output in outputs]

    def _beam_search_output(self, output: RequestOutput) -> BeamSearchOutput:
        tokenizer = self.engine.model.tokenizer
        prompt_text = "" if tokenizer is None else tokenizer.decode(output.prompt_token_ids)
        sequences = []
        for hypothesis in output.outputs:
            assert hypothesis.cumulative_logprob is not None
            assert hypothesis.score is not None
            assert hypothesis.finish_reason is not None
            sequences.append(
                BeamSearchSequence(
                    tokens=output.prompt_token_ids + hypothesis.token_ids,
                    text=prompt_text + hypothesis.text,
                    cum_logprob=hypothesis.cumulative_logprob,
                    score=hypothesis.score,
                    finish_reason=hypothesis.finish_reason,
                    stop_reason=hypothesis.stop_reason,
                )
            )
        return BeamSearchOutput(
            sequences=sequences,
            prompt_token_ids=output.prompt_token_ids,
            num_preemptions=output.num_preemptions,
            block_usage=output.block_usage,
            metrics=output.metrics,
        )

    def _params_for(
        self, prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None
    ) -> list[SamplingParams]:
        if params is None:
            params = self.get_default_sampling_params()
        if isinstance(params, SamplingParams):
            return [params] * len(prompts)
        if not isinstance(params, list | tuple) or not all(isinstance(p, SamplingParams) for p in params):
            raise SamplingParamsError(
                f"sampling_params must be SamplingParams, or a list of them, not {params!r:.80}"
            )
        if len(params) != len(prompts):
            raise PromptError(
                f"{len(prompts)} prompts, but {len(params)} sampling_params: one for all, or one for each"
            )
        return list(params)

    @by_one_thread
    def _run(
        self,
        prompts: Sequence[Prompt],
        params: Sequence[SamplingParams | BeamSearchParams],
        show_progress: bool,
    ) -> list[RequestOutput]:
        if self.engine.has_unfinished_requests():
            raise EngineBusyError(
                "the engine has unfinished requests, whose outputs would be lost here: step it until they "
                f"are done, or abort them (unfinished: {', '.join(self.engine.unfinished_request_ids())})"
            )
        ids: list[str] = []
        finished: dict[str, RequestOutput] = {}
        with self._progress(show_progress) as progress:
            task = progress.add_task("Generating", total=len(prompts), rate="")
            before = self.engine.stats().generation_tokens
            try:
                for number, (prompt, one) in enumerate(zip(prompts, params, strict=True)):
                    request_id = f"generate-{self._num_generated}"
                    self._num_generated += 1
                    self._add(request_id, prompt, one, f"prompt {number}: " if len(prompts) > 1 else "")
                    ids.append(request_id)
                while len(finished) < len(ids):
                    for processor in self.engine.advance():
                        if processor.request.is_finished:
                            output = processor.build()
                            finished[output.request_id] = output
                    elapsed = progress.tasks[0].elapsed or 0.0
                    num_tokens = self.engine.stats().generation_tokens - before
                    rate = f"{num_tokens / elapsed:,.0f} tokens/s" if elapsed > 0.5 else ""
                    progress.update(task, completed=len(finished), rate=rate)
            except BaseException:
                # An unfinished request would make the next call fail. This handles Ctrl-C too.
                self.engine.abort_all()
                raise
        return [finished[request_id] for request_id in ids]

    def _add(
        self, request_id: str, prompt: Prompt, params: SamplingParams | BeamSearchParams, label: str
    ) -> None:
        try:
            self.engine.add_request(request_id, prompt, params)
        except (PromptError, SamplingParamsError) as error:
            raise type(error)(f"{label}{error}") from None

    def _progress(self, show: bool) -> Progress:
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[rate]}"),
            console=self._console,
            disable=not (show and self._is_watched),
            transient=True,
        )
