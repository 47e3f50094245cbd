"""MirroredSimulation: a simulation that takes its step times from a real engine on this machine.

Each request goes to the simulation and to the real engine, and both compute each step. On the simulated
clock, a step takes as long as the real engine needs for it. So arrivals can be given in seconds, and no real
time is spent waiting while nothing runs. The simulation records what each step computed and how long it took,
so that a step-time model can be fitted to it. After each step, the block counts and the queues of the
simulation and the engine are compared.
"""

from __future__ import annotations

import time

from minipaged.engine.llm_engine import LLMEngine
from minipaged.errors import InvariantError
from minipaged.sampling.params import SamplingParams
from minipaged.sim.simulation import Simulation, prompt_token_ids
from minipaged.sim.step_time import StepLoad
from minipaged.sim.timed_request import TimedRequest


class MirroredSimulation(Simulation):
    """A `Simulation` that runs together with a real engine without prefix caching.

    Args:
        engine: the real engine. It must have no requests.

    Attributes:
        loads: what each step computed.
        seconds: how long the real engine took for each step, including the requests added before it.
    """

    def __init__(self, engine: LLMEngine) -> None:
        super().__init__(engine.config, engine.memory_plan, self._run_engine)
        self.loads: list[StepLoad] = []
        self.seconds: list[float] = []
        self._engine = engine
        self._before = engine.stats().num_preemptions
        self._adding = 0.0

    def add(self, timed: TimedRequest) -> None:
        """Queue a request in the simulation and in the real engine."""
        number = self.num_arrivals
        vocab_size = self._engine.model.config.vocab_size
        prompt = [token_id % vocab_size for token_id in prompt_token_ids(timed, number)]
        params = SamplingParams(
            n=timed.num_samples, max_tokens=timed.num_output_tokens, ignore_eos=True, seed=number
        )
        super().add(timed)
        began = time.perf_counter()
        self._engine.add_request(str(number), prompt, params)
        self._adding += time.perf_counter() - began

    def step(self) -> None:
        """Compute a step in the simulation and in the real engine.

        Raises:
            InvariantError: the two disagree after the step, which is a bug of the simulation.
        """
        super().step()
        stats = self._engine.stats()
        real = (stats.num_running, stats.num_waiting, stats.num_free_blocks, stats.num_preemptions)
        simulated = (
            len(self.scheduler.queues.running),
            self.num_waiting,
            self.manager.num_free_blocks,
            self.scheduler.counts.preemptions + self._before,
        )
        if real != simulated:
            raise InvariantError(
                f"after step {self.num_steps}, the real engine has (running, waiting, free blocks, "
                f"preemptions) = {real}, and the simulation {simulated}"
            )

    def _run_engine(self, load: StepLoad) -> float:
        began = time.perf_counter()
        self._engine.advance()
        seconds = time.perf_counter() - began + self._adding
        self._adding = 0.0
        self.loads.append(load)
        self.seconds.append(seconds)
        return seconds
