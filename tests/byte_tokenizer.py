"""A tokenizer whose tokens are bytes: the smallest tokenizer that can encode any text."""

from __future__ import annotations

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from minipaged.model.tokenizer import Tokenizer

_END = "<|endoftext|>"


def byte_tokenizer() -> Tokenizer:
    """A tokenizer without merges: token i < 256 is the byte i, and token 256 ends a text."""
    # ByteLevel writes each byte as one printable character. Most bytes are written as themselves, and the
    # other bytes, in order, as the characters from U+0100 on.
    alphabet = sorted(ByteLevel.alphabet())
    themselves = [byte for byte in range(256) if chr(byte) in alphabet]
    others = [byte for byte in range(256) if chr(byte) not in alphabet]
    vocab = dict(zip(alphabet, themselves + others, strict=True))
    backend = Backend(BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = ByteLevelDecoder()
    backend.add_special_tokens([AddedToken(_END, special=True, normalized=False)])
    return Tokenizer.from_hf(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=_END))
