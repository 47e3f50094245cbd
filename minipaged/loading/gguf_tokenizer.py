"""The tokenizer that a GGUF file describes in its metadata.

Byte-level BPE vocabularies are rebuilt here. Before merges apply, a text is cut into words. GGUF names the
method for that in `tokenizer.ggml.pre`. Only the names below are accepted, because with the wrong method a
model still gives text, but worse text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, decoders, models, normalizers, processors
from tokenizers import Tokenizer as Backend
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

from minipaged.errors import UnsupportedModelError
from minipaged.loading.gguf_end_tokens import CONTROL
from minipaged.loading.gguf_file import GgufFile
from minipaged.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_USER_DEFINED = 4
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PRE_TOKENIZERS = ("smollm", "gpt-2", "llama-bpe", "qwen2")


def read_tokenizer(file: GgufFile) -> Tokenizer | None:
    """Build the tokenizer. The result is `None` for a file without one.

    Raises:
        UnsupportedModelError: the kind of tokenizer, or its method to split words, is not supported.
    """
    kind = file.metadata.get("tokenizer.ggml.model")
    if kind in (None, "no_vocab", "none"):
        return None
    if kind == "gpt2":
        return _byte_level(file)
    if kind == "llama":
        return Tokenizer.from_hf(_sentencepiece(file))
    raise UnsupportedModelError(
        f"{file.path} has a tokenizer of kind {kind!r}. Supported: 'gpt2' (byte-level BPE), 'llama'."
    )


def _byte_level(file: GgufFile) -> Tokenizer:
    tokens = _strings(file, "tokens")
    merges = [_pair(merge) for merge in _strings(file, "merges")]
    pre = file.metadata.get("tokenizer.ggml.pre")
    vocab = {token: i for i, token in enumerate(tokens)}
    # For Llama 3, a word in the vocabulary is one token, even if merging would not give that token.
    try:
        backend = Backend(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre == "llama-bpe"))
    except Exception as error:  # tokenizers raises no narrower type
        raise UnsupportedModelError(f"{file.path} has a tokenizer that cannot be used: {error}") from error
    backend.pre_tokenizer = _pre_tokenizer(file, pre)
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    kinds = file.metadata.get("tokenizer.ggml.token_type")
    marked = list(zip(tokens, kinds if isinstance(kinds, list) else [], strict=False))
    bos, eos = _special(file, tokens, "bos"), _special(file, tokens, "eos")
    special = [token for token, kind in marked if kind == CONTROL] + [bos, eos]
    backend.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special if token is not None]
    )
    backend.add_tokens(
        [AddedToken(token, normalized=False) for token, kind in marked if kind == _USER_DEFINED]
    )
    if bos is not None and file.metadata.get("tokenizer.ggml.add_bos_token", pre == "llama-bpe"):
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, vocab[bos])]
        )
    template = file.metadata.get("tokenizer.chat_template")

    def load_hf() -> PreTrainedTokenizerFast:
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast(
            tokenizer_object=backend,
            bos_token=bos,
            eos_token=eos,
            chat_template=template if isinstance(template, str) else None,
        )

    return Tokenizer(backend, load_hf, None if eos is None else vocab[eos])


def _pre_tokenizer(file: GgufFile, pre: object) -> PreTokenizer:
    if pre == "smollm":
        return Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    if pre == "gpt-2":
        return ByteLevel(add_prefix_space=False)
    if pre in ("llama-bpe", "qwen2"):
        # Llama 3 cuts numbers into groups of up to three digits, Qwen into single digits.
        words = Regex(_WORDS % (r"\p{N}{1,3}" if pre == "llama-bpe" else r"\p{N}"))
        return Sequence([Split(words, "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])
    raise UnsupportedModelError(
        f"{file.path} splits words in the way {pre!r} (tokenizer.ggml.pre), which is not known here. "
        f"Supported: {', '.join(_PRE_TOKENIZERS)}. A folder with safetensors brings its own tokenizer."
    )


def _sentencepiece(file: GgufFile) -> PreTrainedTokenizerFast:
    """A SentencePiece tokenizer, as in Llama 2. transformers derives the merges from the scores."""
    from transformers import AutoTokenizer

    try:
        hf = AutoTokenizer.from_pretrained(
            file.path.parent, gguf_file=file.path.name, local_files_only=True, trust_remote_code=False
        )
    # The exception depends on the installed packages and on the version of transformers.
    except Exception as error:
        raise UnsupportedModelError(f"The tokenizer in {file.path} cannot be loaded: {error}") from error
    # Not every version of transformers reads the end token from the file.
    if (eos := _special(file, _strings(file, "tokens"), "eos")) is not None:
        hf.eos_token = eos
    return hf


def _strings(file: GgufFile, name: str) -> list[str]:
    values = file.metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(values, list):
        raise UnsupportedModelError(f"{file.path} has no tokenizer.ggml.{name}.")
    return [str(value) for value in values]


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _special(file: GgufFile, tokens: list[str], name: str) -> str | None:
    token_id = file.token_id(name)
    return tokens[token_id] if token_id is not None and 0 <= token_id < len(tokens) else None
