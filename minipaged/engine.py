"""LLMEngine: takes requests, runs steps, gives outputs.

add_request -> step -> step -> ... -> outputs
               |- Scheduler.schedule     who runs, on which blocks
               |- ModelRunner.execute    one forward pass, samples
               `- process                append tokens, fork, stop, free
"""

from __future__ import annotations

import logging
import random
import time

from minipaged.attention.backend import select_attention
from minipaged.config import EngineConfig
from minipaged.errors import ConfigError, InvariantError, RequestIdError
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.cache import KVCache
from minipaged.kv.prefix_hash import PrefixHasher
from minipaged.memory_plan import plan_memory, resolve_device, resolve_dtype
from minipaged.model.loader import LoadedModel, load_model
from minipaged.output_builder import OutputBuilder
from minipaged.outputs import RequestOutput
from minipaged.parts import Parts
from minipaged.prompts import Prompt
from minipaged.request import Request, Sequence
from minipaged.request_intake import RequestIntake
from minipaged.runner import ModelRunner, SequenceResult
from minipaged.sampling.params import SamplingParams
from minipaged.scheduler import Scheduler
from minipaged.stats import EngineStats

logger = logging.getLogger(__name__)


class LLMEngine:
    """Serves requests step by step; `LLM` wraps it for offline use.

    Args:
        config: the settings.
        model: a loaded model to use in place of `config.model`; engines may share one, since
            nothing writes to it.

    Raises:
        ConfigError: settings that contradict each other, or a pool too small for one request.
        ModelNotFoundError, UnsupportedModelError, WeightsError: the model cannot be loaded.
    """

    def __init__(self, config: EngineConfig, model: LoadedModel | None = None) -> None:
        self.config = config
        device = resolve_device(config.device)
        dtype = resolve_dtype(config.dtype, device)
        attention = select_attention(config.attention_backend, device)
        self.model = model or load_model(
            config.model, dtype=dtype, device=device, load_format=config.load_format, seed=config.seed
        )
        parts = config.parts or Parts()
        shape = self.model.config
        self.memory_plan = plan_memory(config, shape, dtype, device)
        if not config.enable_chunked_prefill:
            _check_whole_prompts(config, self.memory_plan.max_model_len)
        self.manager = BlockManager(
            self.memory_plan.num_blocks,
            config.block_size,
            PrefixHasher(config.prefix_caching_hash_algo, hash_fn=parts.hash_function)
            if config.enable_prefix_caching
            else None,
        )
        self.scheduler = Scheduler(
            self.manager,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            enable_chunked_prefill=config.enable_chunked_prefill,
            policy=config.scheduling_policy,
        )
        self.kv_cache = KVCache(
            num_layers=shape.num_layers,
            num_blocks=self.memory_plan.num_blocks,
            block_size=config.block_size,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            dtype=dtype,
            device=device,
        )
        self._runner = ModelRunner(
            self.model.decoder,
            self.kv_cache,
            attention=parts.attention or attention,
            write_kv=parts.write_kv,
            slot_mapping=parts.slot_mapping,
            device=device,
            eos_token_ids=shape.eos_token_ids,
        )
        self._intake = RequestIntake(config, self.model, self.manager, self.memory_plan.max_model_len)
        self._requests: dict[str, Request] = {}
        self._builders: dict[str, OutputBuilder] = {}
        self._seeds = random.Random(config.seed)
        self._num_arrivals = 0
        self._num_steps = 0
        self._generation_tokens = 0
        logger.info("%s", self.memory_plan)

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output of one request, in tokens."""
        return self.memory_plan.max_model_len

    def check_request(self, prompt: Prompt, params: SamplingParams, priority: int = 0) -> None:
        """Raise what `add_request` would raise for this prompt, and do nothing else."""
        self._intake.check(prompt, params, priority)

    def add_request(
        self, request_id: str, prompt: Prompt, params: SamplingParams | None = None, priority: int = 0
    ) -> None:
        """Queue a request. Nothing is computed before the next `step`.

        Args:
            request_id: a name of your own, unique among the unfinished requests.
            prompt: a string, token ids, or a dict of either with `cache_salt` and `priority`.
            params: how to sample; `SamplingParams()` if not given.
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
        )
        self._num_arrivals += 1
        self._requests[request_id] = request
        self._builders[request_id] = OutputBuilder(request, self.model, time.monotonic())
        self.scheduler.add(request)

    def has_unfinished_requests(self) -> bool:
        return bool(self._requests)

    def step(self) -> list[RequestOutput]:
        """Compute one step.

        Returns:
            The outputs so far of each request that got a token or ended in this step.
        """
        return [builder.build() for builder in self.advance()]

    def advance(self) -> list[OutputBuilder]:
        """As `step`, without making the outputs: whoever wants only the finished ones, or only
        what is new, saves copying the rest in each step."""
        if not self._requests:
            return []
        output = self.scheduler.schedule()
        if not output.scheduled:
            raise InvariantError("requests are unfinished, but none of them can be scheduled")
        try:
            results = self._runner.execute(output)
        except BaseException:
            # Also after Ctrl-C: what this step promised to the prefix cache is not there.
            self.scheduler.rollback(output)
            raise
        self._num_steps += 1
        advanced: dict[str, OutputBuilder] = {}
        for result in results:
            builder = self._builders[result.item.request.request_id]
            if self._process(result, builder):
                advanced[result.item.request.request_id] = builder
        for request_id, builder in advanced.items():
            if builder.request.is_finished:
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
        builder = self._builders[request_id]
        builder.abort(None)
        self._forget(request_id)
        return builder.build()

    def reset_prefix_cache(self) -> None:
        """Forget all cached blocks. Running requests go on undisturbed."""
        self.manager.reset_prefix_cache()

    def stats(self) -> EngineStats:
        pool = self.manager.pool
        return EngineStats(
            num_blocks=pool.num_blocks,
            num_free_blocks=pool.num_free,
            num_running=len(self.scheduler.running),
            num_waiting=len(self.scheduler.waiting),
            kv_cache_usage=pool.usage,
            num_steps=self._num_steps,
            num_preemptions=self.scheduler.num_preemptions,
            num_copied_blocks=self.manager.num_copied_blocks,
            prefix_cache_queries=self.scheduler.prefix_counts.queries,
            prefix_cache_hits=self.scheduler.prefix_counts.hits,
            prompt_tokens=self.scheduler.num_prompt_tokens,
            generation_tokens=self._generation_tokens,
        )

    def check_invariants(self) -> None:
        """Hold all bookkeeping together. Slow; for tests.

        Raises:
            InvariantError: a bug.
        """
        self.manager.check_invariants(self._requests.values())
        self.scheduler.check_invariants(self._requests.values())

    def _process(self, result: SequenceResult, builder: OutputBuilder) -> bool:
        """Take in what a step found out about one sequence; whether anything is to be reported."""
        item = result.item
        builder.add_prompt_logprobs(item.seq, result.prompt_logprobs)
        item.seq.num_computed_tokens += item.num_tokens
        if not result.samples:
            return False
        samples = [item.seq, *self._fork(item.request, item.seq, len(result.samples) - 1)]
        for seq, sampled in zip(samples, result.samples, strict=True):
            self._generation_tokens += 1
            builder.append(seq, sampled)
            if seq.is_finished:
                self.manager.free(seq)
        return True

    def _fork(self, request: Request, parent: Sequence, count: int) -> list[Sequence]:
        """The other samples of a request, which begin where its prompt ends."""
        children = []
        for index in range(1, count + 1):
            child = Sequence(request.prompt_token_ids, index)
            self.manager.fork(parent, child, parent.num_computed_tokens)
            children.append(child)
        request.sequences += children
        return children

    def _forget(self, request_id: str) -> None:
        request = self._requests.pop(request_id)
        del self._builders[request_id]
        self.scheduler.retire(request)


def _check_whole_prompts(config: EngineConfig, max_model_len: int) -> None:
    if config.max_num_batched_tokens < max_model_len:
        raise ConfigError(
            f"without chunked prefill a prompt of up to {max_model_len:,} tokens must fit into one step, but "
            f"max_num_batched_tokens is {config.max_num_batched_tokens:,}: raise it, lower max_model_len, "
            "or leave enable_chunked_prefill on"
        )
