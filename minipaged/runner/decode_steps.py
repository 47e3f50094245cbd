"""DecodeSteps: the interface of recorded decode steps, and the choice of an implementation for an engine."""

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
from minipaged.transfer import IntArray


class DecodeSteps(Protocol):
    """Computes decode steps instead of the decoder. The runner asks `bucket_of` whether it can."""

    def bucket_of(self, batch: StepBatch) -> int | None:
        """The number of rows with which a step is computed; `None` if it must be computed eagerly."""
        ...

    def run(self, batch: StepBatch, bucket: int, rows: IntArray) -> tuple[Tensor, Tensor]:
        """Compute a step.

        Args:
            batch: a decode step.
            bucket: the result of `bucket_of` for this step.
            rows: int64 `[R]`, which rows of the result the caller will read. They are sent to the device
                together with the inputs.

        Returns:
            The hidden states `[bucket, hidden]`, whose first rows are the batch's, and `rows` on the device.
            The next step may overwrite the hidden states.
        """
        ...


def make_decode_steps(
    config: EngineConfig, decoder: Decoder, layout: AttentionLayout, *, max_model_len: int
) -> DecodeSteps | None:
    """The `DecodeSteps` of an engine with these settings; `None` if all its steps are eager."""
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
    """The `Capture` of an engine with these settings; `None` if decode steps cannot be captured.

    They can be captured on a CUDA device with the Triton kernels, whose launches are the same for all steps
    of one size.
    """
    if not _may_be_recorded(config) or resolve_backend(config.attention_backend, decoder.device) != "triton":
        return None
    capture = (config.parts or Parts()).capture
    if capture is None and decoder.device.type == "cuda":
        return CudaGraphCapture(decoder.device)
    return capture


def _takes_cpu_loops(config: EngineConfig, decoder: Decoder) -> bool:
    """Whether decode steps may run in the recorded CPU loops.

    A reader's functions for block tables and slots may return wrong shapes. An eager step reports such
    mistakes clearly, so these functions run only in eager steps.
    """
    parts = config.parts or Parts()
    ours = parts.slot_mapping is slot_mapping and parts.pad_block_tables is pad_block_tables
    return (
        ours
        and _may_be_recorded(config)
        and resolve_backend(config.attention_backend, decoder.device) == "cpu"
    )


def _may_be_recorded(config: EngineConfig) -> bool:
    """Whether decode steps may be recorded. A reader's functions are not, since each call may differ."""
    parts = config.parts or Parts()
    replaced = (parts.attention, parts.write_kv, parts.paged_decode, parts.paged_decode_split)
    return replaced == (None,) * len(replaced) and config.kv_layout == "paged" and not config.enforce_eager
