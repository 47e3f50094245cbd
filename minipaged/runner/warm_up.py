"""Launching every kernel once, before the first request comes.

Triton compiles a kernel at its first launch, which takes seconds. Decode steps are captured when the engine
is made, and compiled then. This module launches the kernels of prompts, cache writes, block copies and
draws.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minipaged.attention.backend import resolve_backend
from minipaged.attention.layout import AttentionLayout
from minipaged.attention.metadata import AttentionMetadata
from minipaged.attention.paged_layout import PagedLayout
from minipaged.config import EngineConfig
from minipaged.errors import ConfigError
from minipaged.kv.block_pool import NULL_BLOCK
from minipaged.kv.cache import KVCache
from minipaged.kv.copy_on_write import BlockCopy
from minipaged.kv.size import blocks_needed
from minipaged.model.decoder import Decoder
from minipaged.parts import Parts
from minipaged.runner.decode_inputs import NO_SLOT, DecodeInputs
from minipaged.sampling.params import SamplingParams
from minipaged.sampling.sampler import DrawTokens

PROMPT = 2
"""The length of the prompt that is computed. A prompt of one token would be a decode."""


def warm_up(
    config: EngineConfig,
    decoder: Decoder,
    layout: AttentionLayout,
    draw_tokens: DrawTokens,
    *,
    max_model_len: int,
) -> None:
    """Launch the Triton kernels of an engine on a GPU. Other engines have nothing to compile.

    A reader's own functions are not called, since they may rely on the requests of an engine.

    Args:
        config: the settings.
        decoder: the model.
        layout: writes and reads its keys and values. No block of its cache is in use.
        draw_tokens: draws the tokens of an engine.
        max_model_len: the length of the longest sequence, in tokens.

    Raises:
        ConfigError: a kernel needs more of a resource, such as shared memory, than this GPU has.
    """
    parts = config.parts or Parts()
    ours = parts.attention is None and parts.write_kv is None and parts.copy_blocks is None
    compiles = resolve_backend(config.attention_backend, decoder.device) == "triton"
    if compiles and decoder.device.type == "cuda":
        _draw_a_token(decoder, draw_tokens)
    if ours and compiles and decoder.device.type == "cuda" and isinstance(layout, PagedLayout):
        _launch_every_kernel(decoder, layout, max_model_len)


@torch.inference_mode()
def _draw_a_token(decoder: Decoder, draw_tokens: DrawTokens) -> None:
    logits = torch.zeros(1, decoder.config.vocab_size, device=decoder.device)  # [1, V]
    draw_tokens(logits, [0], torch.zeros_like(logits[:, 0], dtype=torch.int64), [SamplingParams()], [0.0])


@torch.inference_mode()
def _launch_every_kernel(decoder: Decoder, layout: PagedLayout, max_model_len: int) -> None:
    """Compute a prompt and decodes of padding, and copy a block. This changes nothing that requests read."""
    from triton import OutOfResources

    padding = DecodeInputs.of_padding(1, blocks_needed(max_model_len, layout.block_size), decoder.device)
    # The longer a sequence, the more programs share it. The kernel that merges their results is compiled for
    # the number of programs, rounded up to a power of two.
    lengths = [2**power for power in range(max_model_len.bit_length())]
    steps = [padding.metadata(length) for length in [*lengths, max_model_len]]
    steps.append(_prompt_metadata(padding.block_tables))
    try:
        for metadata in steps:
            num_tokens = len(metadata.slot_mapping)
            nothing = torch.zeros(num_tokens, dtype=torch.int64, device=decoder.device)  # [T]
            decoder(nothing, nothing, layout.attend_by(metadata))
        _copy_a_block(layout.cache)
    except OutOfResources as error:
        raise ConfigError(
            f"a Triton kernel does not fit into {torch.cuda.get_device_name(decoder.device)}: with head "
            f"dimension {decoder.config.head_dim} in {decoder.dtype} it takes {error.required:,} of "
            f"{error.name}, and there are {error.limit:,}. Use attention_backend='reference'"
        ) from None


def _prompt_metadata(block_tables: Tensor) -> AttentionMetadata:
    """The metadata of a prompt that reads the null block. Its keys and values are not stored."""
    device = block_tables.device
    return AttentionMetadata(
        query_start_loc=torch.tensor((0, PROMPT), dtype=torch.int32, device=device),
        seq_lens=torch.full((1,), PROMPT, dtype=torch.int32, device=device),
        block_tables=block_tables,
        slot_mapping=torch.full((PROMPT,), NO_SLOT, dtype=torch.int64, device=device),
        query_start_list=(0, PROMPT),
        seq_lens_list=(PROMPT,),
        num_decodes=0,
    )


def _copy_a_block(cache: KVCache) -> None:
    if cache.data.shape[2] > NULL_BLOCK + 1:
        cache.copy_blocks([BlockCopy(NULL_BLOCK, NULL_BLOCK + 1)])
