"""The model that comes with the package: small and random, made on the spot.

It speaks in bytes and says nothing sensible, but it has everything that a real model has (grouped
query heads, RoPE, tied embeddings), needs no download, and is the same everywhere.
"""

from __future__ import annotations

import torch

from minipaged.model.config import ModelConfig, RopeConfig
from minipaged.model.decoder import Decoder
from minipaged.model.random_weights import fill_random
from minipaged.model.tokenizer import Tokenizer

_END = "<|endoftext|>"
_SEED = 20230917


def tiny_config() -> ModelConfig:
    """About 1.6 million parameters; a token is one byte, or the end of the text (256)."""
    return ModelConfig(
        architecture="llama",
        hidden_size=192,
        intermediate_size=512,
        num_layers=4,
        num_heads=6,
        num_kv_heads=2,
        head_dim=32,
        vocab_size=257,
        max_position_embeddings=1024,
        rms_norm_eps=1e-5,
        rope=RopeConfig(),
        tie_word_embeddings=True,
        qkv_bias=False,
        o_bias=False,
        qk_norm=False,
        bos_token_id=None,
        eos_token_ids=(256,),
    )


def tiny_decoder(dtype: torch.dtype, device: torch.device) -> Decoder:
    """The decoder with its weights. They are drawn in float32 on the CPU, then converted."""
    config = tiny_config()
    drawn = Decoder(config, torch.float32, torch.device("cpu"))
    fill_random(drawn.weight_views(), _SEED)
    decoder = Decoder(config, dtype, device)
    for name, view in decoder.weight_views().items():
        view.copy_(drawn.weight_views()[name])
    return decoder


def tiny_tokenizer() -> Tokenizer:
    """A byte-level tokenizer without merges: token i < 256 is the byte i."""
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Backend
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    # ByteLevel spells each byte as one printable character: most as themselves, and the others, in
    # order, as those from U+0100 on.
    alphabet = sorted(ByteLevel.alphabet())
    themselves = [byte for byte in range(256) if chr(byte) in alphabet]
    others = [byte for byte in range(256) if chr(byte) not in alphabet]
    vocab = dict(zip(alphabet, themselves + others, strict=True))
    backend = Backend(BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = ByteLevelDecoder()
    backend.add_special_tokens([AddedToken(_END, special=True, normalized=False)])
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=_END))
