"""An engine without a model: real scheduler, real block manager, simulated tensor, invented tokens.

As with a seeded sampler, the next token is a function of the tokens so far and the sample's number. So every
request must end with the same tokens, regardless of the scheduler's decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from minipaged.choices import Batching, SchedulingPolicy
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.prefix_hash import PrefixHasher
from minipaged.request import Request, RequestStatus, Sequence
from minipaged.sampling.params import SamplingParams
from minipaged.scheduler.scheduler import Scheduler
from minipaged.scheduler.scheduler_output import ScheduledSequence, SchedulerOutput
from tests.kv.simulated_tensor import SimulatedTensor, texts

NextToken = Callable[[tuple[int, ...], int], int]


def coin(token_ids: tuple[int, ...], sample: int) -> int:
    """0 or 1, so that the samples of a request are equal for a while before they diverge."""
    return hash((token_ids, sample)) % 2


class FakeEngine:
    """Runs steps like `LLMEngine`, and checks the plan and the cache's contents in each step.

    Args:
        num_usable: blocks in the pool, without the null block.
    """

    def __init__(
        self,
        num_usable: int,
        *,
        block_size: int = 4,
        max_num_seqs: int = 8,
        budget: int = 64,
        chunked: bool = True,
        policy: SchedulingPolicy = "fcfs",
        caching: bool = True,
        batching: Batching = "continuous",
        admits_surely: bool = False,
        copies_forks: bool = False,
        next_token: NextToken = coin,
    ) -> None:
        self.manager = BlockManager(
            num_usable + 1,
            block_size,
            PrefixHasher() if caching and not copies_forks else None,
            copies_forks=copies_forks,
        )
        self.scheduler = Scheduler(
            self.manager,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            enable_chunked_prefill=chunked,
            policy=policy,
            batching=batching,
            admits_surely=admits_surely,
        )
        self.tensor = SimulatedTensor(block_size)
        self.requests: list[Request] = []
        self.budget, self.chunked = budget, chunked
        self._next_token = next_token
        self._num_arrivals = 0

    def add(
        self,
        prompt: list[int] | int,
        max_tokens: int = 4,
        *,
        n: int = 1,
        priority: int = 0,
        salt: str | None = None,
        prompt_logprobs: int | None = None,
    ) -> Request:
        """Queue a request. A number as `prompt` means that many tokens that no other request has."""
        arrival = self._num_arrivals
        self._num_arrivals += 1
        if isinstance(prompt, int):
            prompt = [1000 * (arrival + 1) + i for i in range(prompt)]
        params = SamplingParams(n=n, max_tokens=max_tokens, prompt_logprobs=prompt_logprobs)
        request = Request(
            str(arrival), prompt, params, max_tokens, 0, arrival, priority=priority, cache_salt=salt
        )
        self.requests.append(request)
        self.scheduler.add(request)
        return request

    def schedule(self) -> SchedulerOutput:
        output = self.scheduler.schedule()
        assert output.num_tokens == sum(item.num_tokens for item in output.scheduled) <= self.budget
        assert len({id(item.seq) for item in output.scheduled}) == len(output.scheduled)
        for item in output.scheduled:
            assert item.num_tokens >= 1
            assert item.request.status is RequestStatus.RUNNING
            assert self.chunked or item.reaches_end
            self._check_writes(item)
        assert not (output.admitted and output.preempted)
        self.check()
        return output

    def compute(self, output: SchedulerOutput) -> None:
        """Execute a plan, as the runner and the engine do."""
        spans = [
            (i.seq.num_computed_tokens, i.seq.num_computed_tokens + i.num_tokens) for i in output.scheduled
        ]
        self.tensor.copy([copy for item in output.scheduled for copy in item.copies])
        for item, (start, end) in zip(output.scheduled, spans, strict=True):
            self.tensor.write(list(item.seq.block_table), item.seq.token_ids, start, end)
        for item, (_, end) in zip(output.scheduled, spans, strict=True):
            self._check_reads(item.seq, end)
        for item in output.scheduled:
            at_end = item.reaches_end
            item.seq.num_computed_tokens += item.num_tokens
            if at_end:
                self._sample(item.request, item.seq)
        for request in [request for request in self.requests if request.is_finished]:
            self._end(request)
        for request in self.requests:
            for seq in request.sequences:
                self._check_reads(seq, seq.num_computed_tokens)
        self.check()

    def step(self) -> SchedulerOutput:
        output = self.schedule()
        self.compute(output)
        return output

    def fail(self) -> SchedulerOutput:
        """A step whose forward pass raises, so nothing is copied or written."""
        output = self.schedule()
        self.scheduler.rollback([r for r in self.requests if not r.is_finished])
        self.check()
        return output

    def abort(self, request: Request) -> None:
        self._end(request)
        self.check()

    def run(self, max_steps: int = 1000) -> int:
        """Step until every request is finished. Returns the number of steps."""
        for num_steps in range(max_steps):
            if not self.requests:
                return num_steps
            assert self.step().scheduled, "requests are unfinished, but none can be scheduled"
        raise AssertionError(f"unfinished after {max_steps} steps: {self.requests}")

    def expected(self, request: Request) -> list[list[int]]:
        """The correct tokens of each sample, including the prompt."""
        lines = []
        for sample in range(request.params.n):
            line = list(request.prompt_token_ids)
            for _ in range(request.max_tokens):
                line.append(self._next_token(tuple(line), sample))
            lines.append(line)
        return lines

    def check(self) -> None:
        self.manager.check_invariants(self.requests)
        self.scheduler.check_invariants(self.requests)
        pool = self.manager.pool
        held = Counter(b for r in self.requests for seq in r.sequences for b in seq.block_table)
        assert pool.num_free + len(held) + 1 == pool.num_blocks

    def _check_writes(self, item: ScheduledSequence) -> None:
        """Check that no other sequence holds a block that this step writes.

        The exception is a block that this step fills and that is already in the prefix cache. Other sequences
        of the step may share it.
        """
        seq, size, pool = item.seq, self.manager.block_size, self.manager.pool
        start, end = seq.num_computed_tokens, seq.num_computed_tokens + item.num_tokens
        assert len(seq.block_table) == -(-end // size)
        for i in range(start // size, -(-end // size)):
            promised = pool.is_cached(seq.block_table[i]) and end >= (i + 1) * size
            assert promised or (
                pool.ref_cnt[seq.block_table[i]] == 1 and not pool.is_cached(seq.block_table[i])
            )

    def _check_reads(self, seq: Sequence, end: int) -> None:
        assert self.tensor.read(list(seq.block_table), end) == texts(seq.token_ids, end)

    def _sample(self, request: Request, seq: Sequence) -> None:
        samples = [seq]
        if len(request.sequences) < request.params.n:
            for index in range(1, request.params.n):
                child = Sequence(request.prompt_token_ids, index)
                self.manager.fork(seq, child, seq.num_computed_tokens)
                samples.append(child)
            request.sequences += samples[1:]
        for sample in samples:
            sample.token_ids.append(self._next_token(tuple(sample.token_ids), sample.index))
            if sample.num_output_tokens == request.max_tokens:
                sample.finish_reason = "length"
                self.manager.free(sample)

    def _end(self, request: Request) -> None:
        self.requests.remove(request)
        self.scheduler.retire(request)
