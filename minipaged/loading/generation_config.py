"""Reads generation_config.json: which tokens end a text, and how to sample from the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minipaged.loading.json_fields import Fields
from minipaged.model.config import ModelConfig, token_ids
from minipaged.sampling.defaults import SamplingDefaults


def with_generation_config(config: ModelConfig, values: Mapping[str, object]) -> ModelConfig:
    """The configuration with the settings of `generation_config.json`.

    As in transformers, the end tokens of config.json are ignored if this file exists, even if it has none
    itself. As in vLLM, `do_sample` is ignored, and the other sampling values are always used.

    Args:
        config: the configuration from config.json.
        values: the contents of generation_config.json.

    Raises:
        UnsupportedModelError: a field has the wrong type.
    """
    fields = Fields(values)
    return replace(
        config,
        eos_token_ids=token_ids(fields.get("eos_token_id")),
        sampling_defaults=SamplingDefaults(
            temperature=fields.optional_number("temperature"),
            top_k=fields.optional_whole("top_k"),
            top_p=fields.optional_number("top_p"),
            min_p=fields.optional_number("min_p"),
            repetition_penalty=fields.optional_number("repetition_penalty"),
            max_tokens=fields.optional_whole("max_new_tokens"),
        ),
    )
