"""LLMEngine: takes requests, runs steps, gives outputs.

add_request -> step -> step -> ... -> outputs
               |- Scheduler.schedule     who runs, on which blocks
               |- ModelRunner.execute    one forward pass, samples
               `- take_result            what follows; fork and free
                  |- OutputProcessor     a sample's text, and whether it has ended
                  `- BeamProcessor       which beams go on
"""

from __future__ import annotations

import logging
import random
import time

from minipaged.config import EngineConfig
from minipaged.cpu.compiler.thread_limit import at_most_threads
from minipaged.engine.assembly import assemble, make_bookkeeping
from minipaged.engine.beam_processor import BeamProcessor
from minipaged.engine.block_counts import count_step
from minipaged.engine.intake import RequestIntake
from minipaged.engine.output_processor import OutputProcessor
from minipaged.engine.outputs import RequestOutput
from minipaged.engine.prompts import Prompt
from minipaged.engine.stats import EngineStats
from minipaged.engine.take_result import RequestProcessor, take_result
from minipaged.engine.threads import threads_worth
from minipaged.errors import ConfigError, InvariantError, RequestIdError
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.block_usage import BlockUsage
from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.loading.loader import LoadedModel
from minipaged.request import Request
from minipaged.runner.model_runner import SequenceResult
from minipaged.sampling.beam_params import BeamSearchParams
from minipaged.sampling.beam_search import BeamSearch
from minipaged.sampling.params import SamplingParams
from minipaged.scheduler.scheduler_output import SchedulerOutput

logger = logging.getLogger(__name__)


class LLMEngine:
    """Serves requests step by step; `LLM` wraps it for offline use.

    Args:
        config: the settings.
        model: a loaded model to use in place of `config.model`; engines may share one, since
            nothing writes to it.
        progress: show progress bars while a model is fetched and loaded.

    Raises:
        ConfigError: settings that contradict each other, or a pool too small for one request.
        ModelNotFoundError, UnsupportedModelError, WeightsError: the model cannot be loaded.
    """

    def __init__(
        self, config: EngineConfig, model: LoadedModel | None = None, *, progress: bool = False
    ) -> None:
        if not isinstance(config, EngineConfig):
            raise ConfigError(
                "LLMEngine takes an EngineConfig, as in LLMEngine(EngineConfig(model='tiny')), "
                f"not {config!r:.80}"
            )
        self.config = config
        machinery = assemble(config, model, progress=progress)
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
        logger.info("%s", self.memory_plan)

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
        """Longest prompt plus output of one request, in tokens."""
        return self.memory_plan.max_model_len

    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams | BeamSearchParams | None = None,
        priority: int = 0,
    ) -> None:
        """Queue a request. Nothing is computed before the next `step`.

        Args:
            request_id: a name of your own, unique among the unfinished requests.
            prompt: a string, token ids, or a dict of either with `cache_salt` and `priority`.
            params: how to sample, or how to search; `SamplingParams()` if not given.
            priority: smaller is more urgent; for `scheduling_policy="priority"` alone. A priority
                in the prompt wins.

        Raises:
            RequestIdError: the id is in use, or no string.
            PromptError: a prompt that cannot be served.
            RequestTooLargeError: a request that could never fit; the message has the arithmetic.
            SamplingParamsError: parameters that this model or engine cannot serve.
        """
        if not isinstance(request_id, str) or not request_id:
            raise RequestIdError(f"request_id must be a non-empty string, not {request_id!r}")
        if request_id in self._requests:
            raise RequestIdError(f"request id {request_id!r} is in use by an unfinished request")
        params = SamplingParams() if params is None else params
        accepted = self._intake.check(prompt, params, priority)
        search = None
        if isinstance(params, BeamSearchParams):
            search = BeamSearch(params, accepted.max_tokens, self.model.config.eos_token_ids)
            params = SamplingParams(temperature=0)  # it draws nothing
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
        self._processors[request_id] = (
            OutputProcessor(request, self.model, now)
            if search is None
            else BeamProcessor(request, search, self.kv_manager, self.model, now)
        )
        self.scheduler.add(request)

    def has_unfinished_requests(self) -> bool:
        """Whether any request still waits or runs."""
        return bool(self._requests)

    def unfinished_request_ids(self) -> list[str]:
        """The ids of all requests that wait or run, in the order of their arrival."""
        return list(self._requests)

    def step(self) -> list[RequestOutput]:
        """Compute one step.

        Returns:
            The outputs so far, from their beginning, of each request that got a token or ended in
            this step; of a beam search when it has ended, since before that nothing in it is settled.
        """
        return [processor.build() for processor in self.advance()]

    def advance(self) -> list[RequestProcessor]:
        """As `step`, without making the outputs: whoever wants only the finished ones, or only
        what is new, saves copying the rest in each step."""
        if not self._requests:
            return []
        output = SchedulerOutput()
        try:
            self.scheduler.schedule(output)
            if not output.scheduled:
                raise InvariantError("requests are unfinished, but none of them can be scheduled")
            with at_most_threads(self._threads_worth):
                results = self._runner.execute(output)
        except BaseException:
            self._recover(output)
            raise
        try:
            return self._take_in(output, results)
        except BaseException:
            self._drop_everything()
            raise

    def _recover(self, output: SchedulerOutput) -> None:
        """After a step that failed, or that Ctrl-C interrupted at any point: no request is lost."""
        try:
            self.scheduler.rollback(output, self._requests.values())
            self.check_invariants()
        except Exception:
            self._drop_everything()

    def _drop_everything(self) -> None:
        """Begin anew, without requests: the bookkeeping was interrupted halfway, and no part of it
        can be trusted. The counts of the scheduler begin anew as well."""
        self.kv_manager, self.scheduler = make_bookkeeping(self.config, self.memory_plan, self.kv_cache)
        self._intake = self._make_intake()
        self._requests.clear()
        self._processors.clear()

    def _make_intake(self) -> RequestIntake:
        return RequestIntake(self.config, self.model, self.kv_manager, self.max_model_len)

    def _take_in(self, output: SchedulerOutput, results: list[SequenceResult]) -> list[RequestProcessor]:
        self._num_steps += 1
        num_in_use = self.kv_manager.num_blocks_in_tables
        count_step(self._block_usage, output.scheduled, self.scheduler.running, num_in_use)
        advanced: dict[str, RequestProcessor] = {}
        for result in results:
            processor = self._processors[result.item.request.request_id]
            num_tokens = take_result(result, processor, self.kv_manager)
            if num_tokens is not None:
                self._generation_tokens += num_tokens
                advanced[result.item.request.request_id] = processor
        for request_id, processor in advanced.items():
            if processor.request.is_finished:
                self._forget(request_id)
        return list(advanced.values())

    def abort_request(self, request_id: str) -> RequestOutput | None:
        """End a request at once, and free everything it holds.

        Returns:
            Its output so far; `None` for an id that is not in use, so that aborting a request that
            has just finished is no error.
        """
        if request_id not in self._requests:
            return None
        processor = self._processors[request_id]
        self._forget(request_id)
        processor.abort()
        return processor.build()

    def abort_all(self) -> None:
        """End all requests, whatever state an interrupt has left them in."""
        try:
            for request_id in self.unfinished_request_ids():
                self.abort_request(request_id)
            self.check_invariants()
        except Exception:
            self._drop_everything()

    def reset_prefix_cache(self) -> None:
        """Forget all cached blocks. Running requests go on undisturbed."""
        self.kv_manager.reset_prefix_cache()

    def memory_breakdown(self) -> MemoryBreakdown:
        """How the KV memory divides at this moment; see `minipaged.kv.breakdown`. Without a cache
        (`kv_layout="none"`) all is 0."""
        scheduler = self.scheduler
        next_request = scheduler.waiting.peek() if scheduler.waiting else None
        return self.kv_manager.breakdown(scheduler.running, next_request)

    def stats(self) -> EngineStats:
        """The engine's state now, and its counts since it was made."""
        return EngineStats(
            num_blocks=self.kv_manager.num_blocks,
            num_free_blocks=self.kv_manager.num_free_blocks,
            num_running=len(self.scheduler.running),
            num_waiting=len(self.scheduler.waiting) + len(self.scheduler.swapped),
            kv_cache_usage=self.kv_manager.usage,
            num_steps=self._num_steps,
            num_preemptions=self.scheduler.num_preemptions,
            num_swapped_blocks=self.scheduler.num_swapped_blocks,
            num_copied_blocks=self._block_usage.num_copied_blocks,
            sharing_saving=self._block_usage.sharing_saving,
            prefix_cache_queries=self.scheduler.prefix_counts.queries,
            prefix_cache_hits=self.scheduler.prefix_counts.hits,
            prompt_tokens=self.scheduler.num_prompt_tokens,
            generation_tokens=self._generation_tokens,
        )

    def check_invariants(self) -> None:
        """Compare all bookkeeping. Slow; for tests.

        Raises:
            InvariantError: a bug.
        """
        self.kv_manager.check_invariants(self._requests.values())
        self.scheduler.check_invariants(self._requests.values())

    def _forget(self, request_id: str) -> None:
        request = self._requests.pop(request_id)
        del self._processors[request_id]
        self.scheduler.retire(request)
