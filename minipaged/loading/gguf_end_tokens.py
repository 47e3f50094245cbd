"""Which tokens end a text, in a GGUF file.

The file's keys name one, two or three. Files made before the later keys name too few: a chat model whose
`eos` ends a document, and not a turn, would go on with the next turn. llama.cpp therefore also looks at the
vocabulary for tokens that are called like an end (`special_eog_ids` in src/llama-vocab.cpp), and so do we.
"""

from __future__ import annotations

from minipaged.loading.gguf_file import GgufFile

CONTROL = 3
"""The kind of a token that is never text (`tokenizer.ggml.token_type`)."""

_KEYS = ("eos", "eot", "eom")

END_NAMES = frozenset(
    (
        *("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]"),  # the text ends
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<EOT>", "_<EOT>", "[EOT]"),  # a turn
        *("<|eom_id|>", "<end_of_utterance>"),  # a message
        # Padding; and between the files of a repository, which a code model was trained on in one piece.
        *("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
        *("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"),
    )
)
"""llama.cpp's, without those of architectures that the decoder does not have."""


def end_token_ids(file: GgufFile) -> tuple[int, ...]:
    """Those that the keys name, and then all control tokens with one of `END_NAMES`, without repetition."""
    named = [token_id for key in _KEYS if (token_id := file.token_id(key)) is not None]
    tokens, kinds = file.metadata.get("tokenizer.ggml.tokens"), file.metadata.get("tokenizer.ggml.token_type")
    if isinstance(tokens, list) and isinstance(kinds, list):
        marked = enumerate(zip(tokens, kinds, strict=False))
        named += [i for i, (token, kind) in marked if kind == CONTROL and token in END_NAMES]
    return tuple(dict.fromkeys(named))
