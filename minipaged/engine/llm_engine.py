"""LLMEngine: takes requests, runs steps, returns outputs.

add_request -> step -> step -> ... -> outputs
               |- Scheduler.schedule     which requests run, on which blocks
               |- ModelRunner.execute    one forward pass, samples
               `- OutputProcessor.take   a sample's text, and whether it has ended; fork and free
                  (BeamProcessor.take)   which beams continue
"""

from __future__ import annotations

import functools
import logging
import random
import sys
import time

from minipaged.config import EngineConfig
from minipaged.cpu.compiler.thread_limit import at_most_threads
from minipaged.engine.assembly import assemble, make_bookkeeping
from minipaged.engine.beam_processor import BeamProcessor
from minipaged.engine.intake import Prompt, RequestIntake
from minipaged.engine.observed import ObservedBeamProcessor, ObservedOutputProcessor, engine_started
from minipaged.engine.one_thread import OneThread, by_one_thread
from minipaged.engine.output_processor import OutputProcessor
from minipaged.engine.outputs import RequestOutput
from minipaged.engine.stats import EngineStats
from minipaged.engine.threads import threads_worth
from minipaged.errors import ConfigError, InvariantError, RequestIdError
from minipaged.events import EngineReset, Observer, StepExecuted
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.block_usage import BlockUsage, count_blocks
from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.kv.event_stream import EventStream
from minipaged.loading.loader import LoadedModel
from minipaged.request import Request
from minipaged.runner.model_runner import SequenceResult
from minipaged.sampling.beam_params import BeamSearchParams
from minipaged.sampling.beam_search import BeamSearch
from minipaged.sampling.defaults import SamplingDefaults
from minipaged.sampling.params import SamplingParams
from minipaged.scheduler.observed import tell_finished

logger = logging.getLogger(__name__)

RequestProcessor = OutputProcessor | BeamProcessor


class LLMEngine:
    """Serves requests step by step; `LLM` wraps it for offline use.

    One thread at a time may call its methods. Only `stats`, `has_unfinished_requests` and
    `unfinished_request_ids` may be called by any thread at any time. While one thread is inside another
    method, calls from other threads raise `EngineBusyError`, and change nothing.

    Args:
        config: the settings.
        model: a loaded model to use instead of `config.model`. Several engines may share a model, since an
            engine never changes it.
        observer: called with each event of the engine, in order; see `minipaged/events/`. Without an
            observer, a step has no additional cost.
        progress: whether to show progress bars while a model is fetched and loaded.

    Raises:
        ConfigError: the settings contradict each other, or the pool is too small for one request.
        ModelNotFoundError, UnsupportedModelError, WeightsError: the model cannot be loaded.
        ForkedProcessError: the process was forked from one that has made an engine. The methods of an
            engine that was made before the fork raise it too.
    """

    def __init__(
        self,
        config: EngineConfig,
        model: LoadedModel | None = None,
        *,
        observer: Observer | None = None,
        progress: bool = False,
    ) -> None:
        if not isinstance(config, EngineConfig):
            raise ConfigError(
                "LLMEngine takes an EngineConfig, as in LLMEngine(EngineConfig(model='tiny')), "
                f"not {config!r:.80}"
            )
        self.one_thread = OneThread()
        self.config = config
        self._events = None if observer is None else EventStream(observer)
        machinery = assemble(config, model, self._events, progress=progress)
        self.model = machinery.model
        self.memory_plan = machinery.memory_plan
        self.kv_manager = machinery.kv_manager
        self.scheduler = machinery.scheduler
        self.kv_cache = machinery.kv_cache
        self._runner = machinery.runner
        self._threads_worth = threads_worth(self.model.decoder)
        self._intake = self._make_intake()
        self._requests: dict[str, Request] = {}
        self._processors: dict[str, RequestProcessor] = {}
        self._block_usage = BlockUsage()
        self._seeds = random.Random(config.seed)
        self._num_arrivals = 0
        self._num_steps = 0
        self._generation_tokens = 0
        if self._events is not None:
            self._tell_start(self._events)
        logger.info("%s", self.memory_plan)

    def _tell_start(self, events: EventStream) -> None:
        if self.model.tokenizer is not None:
            decode = self.model.tokenizer.decode
            events.token_text = functools.cache(
                lambda token_id: decode([token_id], skip_special_tokens=False)
            )
        events.emit(engine_started(self.config, self.memory_plan))

    @property
    def manager(self) -> BlockManager:
        """The block manager of a paged engine.

        Raises:
            ConfigError: the engine's `kv_layout` has no blocks.
        """
        if not isinstance(self.kv_manager, BlockManager):
            raise ConfigError(
                f"kv_layout={self.config.kv_layout!r} has no blocks to look at: use kv_layout='paged'"
            )
        return self.kv_manager

    @property
    def max_model_len(self) -> int:
        """The most tokens of one request, prompt and output together."""
        return self.memory_plan.max_model_len

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """The model's own sampling values, for requests without parameters; empty if there are none."""
        uses_models = self.config.generation_config == "auto"
        return self.model.config.sampling_defaults if uses_models else SamplingDefaults()

    @by_one_thread
    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams | BeamSearchParams | None = None,
        priority: int = 0,
    ) -> None:
        """Queue a request. Nothing is computed before the next `step`.

        Args:
            request_id: a name that you choose, unique among the unfinished requests.
            prompt: a string, a list of token ids, or a dict that holds one of them, and optionally
                `cache_salt` and `priority`.
            params: how to sample, or how to search; `sampling_defaults` if not given.
            priority: a smaller number is more urgent. Only for `scheduling_policy="priority"`. A priority
                in the prompt overrides this one.

        Raises:
            RequestIdError: the id is in use, or is not a string.
            PromptError: the prompt cannot be served.
            RequestTooLargeError: the request could never fit; the message shows the arithmetic.
            SamplingParamsError: this model or engine cannot serve the parameters.
        """
        if not isinstance(request_id, str) or not request_id:
            raise RequestIdError(f"request_id must be a non-empty string, not {request_id!r}")
        if request_id in self._requests:
            raise RequestIdError(f"request id {request_id!r} is in use by an unfinished request")
        params = self.sampling_defaults.params() if params is None else params
        accepted = self._intake.check(prompt, params, priority)
        search = None
        if isinstance(params, BeamSearchParams):
            search = BeamSearch(params, accepted.max_tokens, self.model.config.eos_token_ids)
            params = SamplingParams(temperature=0)  # a beam search samples nothing
        request = Request(
            request_id=request_id,
            prompt_token_ids=accepted.prompt.token_ids,
            params=params,
            max_tokens=accepted.max_tokens,
            sampling_seed=self._seeds.getrandbits(64) if params.seed is None else params.seed,
            arrival=self._num_arrivals,
            priority=accepted.priority,
            cache_salt=accepted.prompt.cache_salt,
            prompt=accepted.prompt.text,
            search=search,
        )
        self._num_arrivals += 1
        self._requests[request_id] = request
        now = time.monotonic()
        output_kind, beam_kind = OutputProcessor, BeamProcessor
        if self._events is not None:
            output_kind, beam_kind = ObservedOutputProcessor, ObservedBeamProcessor
        processor = self._processors[request_id] = (
            output_kind(request, self.kv_manager, self.model, now)
            if search is None
            else beam_kind(request, search, self.kv_manager, self.model, now)
        )
        if self._events is not None:
            self._events.observe(processor)
        self.scheduler.add(request)

    def has_unfinished_requests(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self._requests)

    def unfinished_request_ids(self) -> list[str]:
        """The ids of all requests that wait or run, in the order of their arrival."""
        return list(self._requests)

    @by_one_thread
    def step(self) -> list[RequestOutput]:
        """Compute one step.

        Returns:
            One output for each request that got a token or ended in this step. It contains all tokens so
            far, not only the new ones. A beam search gives an output only when it has ended, since its
            result is not known before.
        """
        return [processor.build() for processor in self.advance()]

    @by_one_thread
    def advance(self) -> list[RequestProcessor]:
        """Compute one step like `step`, but return processors. Their `build` methods make the outputs.

        So a caller that needs only finished outputs, or only new tokens, need not copy the rest.
        """
        if not self._requests:
            return []
        try:
            plan = self.scheduler.schedule()
            if not plan.scheduled:
                raise InvariantError("requests are unfinished, but none of them can be scheduled")
            with at_most_threads(self._threads_worth):
                results = self._runner.execute(plan)
            if self._events is not None:
                self._events.emit(StepExecuted(self._events.now()))
        except BaseException:
            self._recover()
            raise
        try:
            return self._take_in(results)
        except BaseException:
            self._drop_everything()
            raise

    def _recover(self) -> None:
        """Undo a step that failed, or that Ctrl-C interrupted at any point, without losing a request.

        If the bookkeeping is still inconsistent after that, all requests are dropped.
        """
        try:
            self.scheduler.rollback(self._requests.values())
            self.check_invariants()
        except Exception:
            self._drop_everything()

    def _drop_everything(self) -> None:
        """Replace all bookkeeping by new, empty bookkeeping, and drop all requests.

        This is for bookkeeping that was interrupted halfway, so that it cannot be trusted. The scheduler's
        counts restart at 0.
        """
        self.kv_manager, self.scheduler = make_bookkeeping(
            self.config, self.memory_plan, self.kv_cache.copy_slots, self._events
        )
        self._intake = self._make_intake()
        self._requests.clear()
        self._processors.clear()
        if self._events is not None:
            self._events.emit(EngineReset(self._events.now(), f"{sys.exception()!r:.200}"))

    def _make_intake(self) -> RequestIntake:
        return RequestIntake(self.config, self.model, self.kv_manager, self.max_model_len)

    def _take_in(self, results: list[SequenceResult]) -> list[RequestProcessor]:
        """Process the results of a step. Returns the processors of the requests that have new outputs."""
        self._num_steps += 1
        running = self.scheduler.queues.running
        count_blocks(self._block_usage, running, self.kv_manager.num_blocks_in_tables)
        advanced: dict[str, RequestProcessor] = {}
        for result in results:
            item = result.item
            request = item.request
            item.seq.num_computed_tokens += item.num_tokens
            if item.copies:
                self._block_usage.num_copied_blocks += len(item.copies)
                request.block_usage.num_copied_blocks += len(item.copies)
            processor = self._processors[request.request_id]
            num_tokens = processor.take(result)
            if num_tokens is not None:
                self._generation_tokens += num_tokens
                advanced[request.request_id] = processor
        for request_id, processor in advanced.items():
            if processor.request.is_finished:
                self._forget(request_id)
        if self._events is not None:
            tell_finished(self._events, self.scheduler.queues, self.kv_manager)
        return list(advanced.values())

    @by_one_thread
    def abort_request(self, request_id: str) -> RequestOutput | None:
        """End a request at once, and free its memory.

        Returns:
            Its output so far. `None` if the id is not in use: aborting a request that has just finished
            is not an error.
        """
        if request_id not in self._requests:
            return None
        processor = self._processors[request_id]
        self._forget(request_id)
        processor.abort()
        return processor.build()

    @by_one_thread
    def abort_all(self) -> None:
        """End all requests. This works in any state that an interrupt may have left."""
        try:
            for request_id in self.unfinished_request_ids():
                self.abort_request(request_id)
            self.check_invariants()
        except Exception:
            self._drop_everything()

    @by_one_thread
    def reset_prefix_cache(self) -> None:
        """Forget all cached blocks. Running requests are not affected."""
        self.kv_manager.reset_prefix_cache()

    @by_one_thread
    def memory_breakdown(self) -> MemoryBreakdown:
        """How the KV memory is used at this moment; see `minipaged.kv.breakdown`.

        Without a cache (`kv_layout="none"`) all numbers are 0.
        """
        queues = self.scheduler.queues
        next_request = queues.waiting.peek() if queues.waiting else None
        return self.kv_manager.breakdown(queues.running, next_request)

    def stats(self) -> EngineStats:
        """The engine's current state, and its counts since it was created."""
        queues, counts = self.scheduler.queues, self.scheduler.counts
        return EngineStats(
            num_blocks=self.kv_manager.num_blocks,
            num_free_blocks=self.kv_manager.num_free_blocks,
            num_running=len(queues.running),
            num_waiting=len(queues.waiting) + len(queues.swapped),
            kv_cache_usage=self.kv_manager.usage,
            num_steps=self._num_steps,
            num_preemptions=counts.preemptions,
            num_swapped_blocks=counts.swapped_blocks,
            num_copied_blocks=self._block_usage.num_copied_blocks,
            sharing_saving=self._block_usage.sharing_saving,
            prefix_cache_queries=counts.prefix_cache_queries,
            prefix_cache_hits=counts.prefix_cache_hits,
            prompt_tokens=counts.prompt_tokens,
            generation_tokens=self._generation_tokens,
        )

    @by_one_thread
    def check_invariants(self) -> None:
        """Check that all bookkeeping agrees. This is slow, and meant for tests.

        Raises:
            InvariantError: the bookkeeping disagrees, which is a bug.
        """
        self.kv_manager.check_invariants(self._requests.values())
        self.scheduler.check_invariants(self._requests.values())

    def _forget(self, request_id: str) -> None:
        request = self._requests.pop(request_id)
        del self._processors[request_id]
        self.scheduler.retire(request)
