"""For engines with an observer: processors that report sampled tokens, and the engine's first event."""

from __future__ import annotations

from minipaged.config import EngineConfig
from minipaged.engine.beam_processor import BeamProcessor
from minipaged.engine.memory_plan import MemoryPlan
from minipaged.engine.output_processor import OutputProcessor
from minipaged.events import BeamsChosen, EngineStarted, SequenceFinished, TokenSampled
from minipaged.kv.event_stream import Observed
from minipaged.request import Sequence
from minipaged.sampling.beam_search import Survivor
from minipaged.sampling.sampler import SampledToken
from minipaged.stages import NUM_STAGES


class ObservedOutputProcessor(OutputProcessor, Observed):
    """An `OutputProcessor` that tells an observer what it does."""

    def _append(self, seq: Sequence, sampled: SampledToken) -> None:
        sample = self._sample(seq)
        num_characters, num_tokens = len(sample.text), seq.num_tokens
        super()._append(seq, sampled)
        seq_id = self.events.id_of(seq)
        if seq.num_tokens > num_tokens:
            self.events.emit(TokenSampled(seq_id, sampled.token_id, sample.text[num_characters:]))
        if seq.finish_reason is not None:
            reason = None if sample.stop_reason is None else str(sample.stop_reason)
            self.events.emit(SequenceFinished(seq_id, seq.finish_reason, reason))


class ObservedBeamProcessor(BeamProcessor, Observed):
    """A `BeamProcessor` that tells an observer what it does."""

    def _follow(self, survivors: list[Survivor]) -> None:
        super()._follow(survivors)
        seq_ids = tuple(self.events.id_of(beam) for beam in self.request.sequences)
        token_ids = tuple(survivor.token_id for survivor in survivors)
        self.events.emit(BeamsChosen(self.request.request_id, seq_ids, token_ids))


def _stage_of(config: EngineConfig) -> int | None:
    """The stage of the course that has these settings, apart from sizes; `None` if no stage has them."""
    names = ("kv_layout", "fork_mode", "batching", "preemption_mode", "caches_prefixes")
    stages = {stage: EngineConfig.at_stage(stage) for stage in range(1, NUM_STAGES + 1)}
    alike = [
        number
        for number, stage in stages.items()
        if all(getattr(stage, name) == getattr(config, name) for name in names)
    ]
    # Stages 4 and 5 differ only in the attention.
    same_attention = [each for each in alike if stages[each].attention_backend == config.attention_backend]
    return next(iter([*same_attention, *reversed(alike)]), None)


def engine_started(config: EngineConfig, plan: MemoryPlan) -> EngineStarted:
    """The first event of an engine: its settings, and the sizes that follow from them."""
    return EngineStarted(
        model=config.model_name,
        stage=_stage_of(config),
        kv_layout=config.kv_layout,
        block_size=config.block_size,
        num_blocks=plan.num_blocks if config.kv_layout != "none" else 0,
        num_cpu_blocks=plan.num_cpu_blocks or 0,
        max_model_len=plan.max_model_len,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        enable_chunked_prefill=config.enable_chunked_prefill,
        enable_prefix_caching=config.caches_prefixes,
        scheduling_policy=config.scheduling_policy,
        preemption_mode=config.preemption_mode,
        batching=config.batching,
        fork_mode=config.fork_mode,
        reserve=config.reserve,
        region_allocator=config.region_allocator,
    )
