"""The tokens that end a text, from a GGUF file.

The file's keys name one, two or three tokens. Older files lack the later keys and name too few: if the `eos`
of a chat model ends a document but not a turn, the model would go on with the next turn. So llama.cpp also
searches the vocabulary for tokens with the name of an end token (`special_eog_ids` in src/llama-vocab.cpp),
and so do we.
"""

from __future__ import annotations

from minipaged.loading.gguf_file import GgufFile

CONTROL = 3
"""The type, in `tokenizer.ggml.token_type`, of tokens that are never text."""

_KEYS = ("eos", "eot", "eom")

END_NAMES = frozenset(
    (
        *("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]"),  # the end of a text
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<EOT>", "_<EOT>", "[EOT]"),  # of a turn
        *("<|eom_id|>", "<end_of_utterance>"),  # of a message
        # Padding, and the separators of a repository's files in the training of code models.
        *("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
        *("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"),
    )
)
"""The names in llama.cpp, without those of architectures that the decoder does not have."""


def end_token_ids(file: GgufFile) -> tuple[int, ...]:
    """The tokens that the keys name, then control tokens with a name in `END_NAMES`, without repetition."""
    named = [token_id for key in _KEYS if (token_id := file.token_id(key)) is not None]
    tokens, kinds = file.metadata.get("tokenizer.ggml.tokens"), file.metadata.get("tokenizer.ggml.token_type")
    if isinstance(tokens, list) and isinstance(kinds, list):
        marked = enumerate(zip(tokens, kinds, strict=False))
        named += [i for i, (token, kind) in marked if kind == CONTROL and token in END_NAMES]
    return tuple(dict.fromkeys(named))
