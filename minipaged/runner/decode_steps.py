"""DecodeSteps: what computes decode steps in the place of the eager way, and which one an engine has."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from minipaged.attention.backend import resolve_backend
from minipaged.attention.layout import AttentionLayout
from minipaged.attention.paged_layout import PagedLayout
from minipaged.config import EngineConfig
from minipaged.kv.block_table import pad_block_tables, slot_mapping
from minipaged.model.decoder import Decoder
from minipaged.parts import Parts
from minipaged.runner.capture import Capture, CudaGraphCapture
from minipaged.runner.decode_graphs import DecodeGraphs
from minipaged.runner.step_batch import StepBatch
from minipaged.to_device import IntArray


class DecodeSteps(Protocol):
    """What the runner asks first."""

    def bucket_of(self, batch: StepBatch) -> int | None:
        """The rows that a step is computed with; `None` if it has to be computed eagerly."""
        ...

    def run(self, batch: StepBatch, bucket: int, rows: IntArray) -> tuple[Tensor, Tensor]:
        """Compute a step.

        Args:
            batch: a decode step.
            bucket: its `bucket_of`.
            rows: int64 `[R]`, which rows of the result the caller will read. They travel to the device with
                the inputs.

        Returns:
            The hidden states `[bucket, hidden]`, in memory that the next step may use again, the first
            rows those of the batch; and `rows`.
        """
        ...


def make_decode_steps(
    config: EngineConfig, decoder: Decoder, layout: AttentionLayout, *, max_model_len: int
) -> DecodeSteps | None:
    """What an engine with these settings has; `None` if all its steps are eager."""
    if not isinstance(layout, PagedLayout):
        return None
    capture = make_capture(config, decoder)
    if capture is not None:
        return DecodeGraphs(
            decoder, layout, max_num_seqs=config.max_num_seqs, max_model_len=max_model_len, capture=capture
        )
    if _takes_cpu_loops(config, decoder):
        from minipaged.cpu.recorded_decode import RecordedDecode, can_record

        if can_record(decoder, layout):
            return RecordedDecode(
                decoder, layout, max_num_seqs=config.max_num_seqs, max_model_len=max_model_len
            )
    return None


def make_capture(config: EngineConfig, decoder: Decoder) -> Capture | None:
    """What captures decode steps, where that is possible: on a CUDA device, with the kernels of Triton,
    which launch the same for all steps of a size."""
    if not _may_be_recorded(config) or resolve_backend(config.attention_backend, decoder.device) != "triton":
        return None
    capture = (config.parts or Parts()).capture
    if capture is None and decoder.device.type == "cuda":
        return CudaGraphCapture(decoder.device)
    return capture


def _takes_cpu_loops(config: EngineConfig, decoder: Decoder) -> bool:
    """Whether a step takes the CPU's loops. What a reader's parts give for block tables and slots may have
    any shape: it goes where its mistakes show, to an eager step."""
    parts = config.parts or Parts()
    ours = parts.slot_mapping is slot_mapping and parts.pad_block_tables is pad_block_tables
    return (
        ours
        and _may_be_recorded(config)
        and resolve_backend(config.attention_backend, decoder.device) == "cpu"
    )


def _may_be_recorded(config: EngineConfig) -> bool:
    """A reader's attention may do anything in each step."""
    parts = config.parts or Parts()
    ours = parts.attention is None and parts.write_kv is None
    return ours and config.kv_layout == "paged" and not config.enforce_eager
