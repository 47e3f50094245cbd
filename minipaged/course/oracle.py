"""The oracle: transformers' result for the embedded model, in float32 and with eager attention."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig, PreTrainedModel

from minipaged.errors import CourseError
from minipaged.loading.loader import LoadedModel

TIE = 1e-4
"""If the oracle's two best logits differ by at most this, either token is right."""


def llama_of(loaded: LoadedModel) -> PreTrainedModel:
    """The transformers model with the weights of a loaded Llama.

    Raises:
        CourseError: the model is of another family.
    """
    config = loaded.config
    if config.architecture != "llama" or config.rope.scaling != "default":
        raise CourseError(f"the course's oracle computes plain Llama models, not {loaded.name}")
    hf = LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_position_embeddings,
        rms_norm_eps=config.rms_norm_eps,
        tie_word_embeddings=config.tie_word_embeddings,
        attention_bias=config.o_bias,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope.theta},
        bos_token_id=None,
        eos_token_id=list(config.eos_token_ids) or None,
    )
    model = AutoModelForCausalLM.from_config(hf, attn_implementation="eager").eval()
    weights = {name: view.float().cpu() for name, view in loaded.decoder.weight_views().items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise CourseError(f"transformers has other weights than {loaded.name}: {missing} {unexpected}")
    model.generation_config = GenerationConfig()  # ignore the generation settings of the model
    return model


@torch.inference_mode()
def distance_to_greedy(model: PreTrainedModel, prompt: Sequence[int], output: Sequence[int]) -> list[float]:
    """For each output token, how far its logit is below the oracle's best logit, given all tokens before it.

    The distance is 0 for the oracle's own token. A distance of at most `TIE` is a tie.
    """
    logits = model(torch.tensor([[*prompt, *output]])).logits[0].float()  # [T, vocab]
    predicting: Tensor = logits[len(prompt) - 1 : -1]  # [len(output), vocab]
    chosen = predicting.gather(1, torch.tensor(output)[:, None]).squeeze(1)  # [len(output)]
    return (predicting.max(dim=1).values - chosen).tolist()
