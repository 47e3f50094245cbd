"""What generation_config.json says: which tokens end a text, and how the model is to be sampled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minipaged.loading.json_fields import Fields
from minipaged.model.config import ModelConfig, token_ids
from minipaged.sampling.defaults import SamplingDefaults


def with_generation_config(config: ModelConfig, values: Mapping[str, object]) -> ModelConfig:
    """A configuration with what `generation_config.json` says.

    As in transformers, the end tokens are those of this file alone, none included: where there is such a
    file, those of config.json do not count. Whether the model was made to be sampled or not (`do_sample`)
    does not matter, as in vLLM: what counts are the values.

    Args:
        config: what config.json says.
        values: what generation_config.json holds.

    Raises:
        UnsupportedModelError: a field of another type.
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
