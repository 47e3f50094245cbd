"""Block hashes: what a full block holds, and all that came before it, in 16 or 32 bytes.

    block_hash = H((parent_hash, token_ids, extra_keys))

The parent's hash carries the whole prefix along, so two blocks with the same tokens after
different beginnings differ. The chain begins at `NONE_HASH`, the parent of first blocks.

Four algorithms, with vLLM's names and byte for byte its values:

| name          | bytes that are hashed                 | hash     | digest   |
|---------------|---------------------------------------|----------|----------|
| `sha256`      | pickle, highest protocol              | SHA-256  | 32 bytes |
| `sha256_cbor` | canonical CBOR (RFC 8949, section 4.2) | SHA-256  | 32 bytes |
| `xxhash`      | pickle, highest protocol              | xxh3-128 | 16 bytes |
| `xxhash_cbor` | canonical CBOR                        | xxh3-128 | 16 bytes |

The two pickled ones are reproducible only among Python versions with the same highest protocol
(5 from Python 3.8 to at least 3.14). To share hashes between programs, take `sha256_cbor`.

Pickle has a second catch: it writes an object that occurs twice as a reference, but two equal
copies in full. The keys made here are interned, so that equal keys always give equal bytes.

Sources: vLLM, `utils/hashing.py` and `v1/core/kv_cache_utils.py` (`hash_block_tokens`,
`generate_block_hash_extra_keys`, `resolve_none_hash_seed`).
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, get_args

import cbor2
import xxhash

from minipaged.choices import HashAlgorithm
from minipaged.errors import ConfigError, PromptError

ExtraKey = tuple[str, str] | tuple[str, str, str] | tuple[str, str, int]
ExtraKeys = tuple[ExtraKey, ...]
"""What else must agree for two blocks to be the same: an adapter, images, a salt."""

HashInput = tuple[bytes, tuple[int, ...], ExtraKeys | None] | str

DEFAULT_SEED = "vllm-none-hash"


class HashFunction(Protocol):
    """A digest of a block (parent hash, token ids, extra keys), or of the seed string."""

    def __call__(self, value: HashInput, /) -> bytes: ...


def sha256(value: HashInput, /) -> bytes:
    """SHA-256 of the pickled value: 32 bytes."""
    return hashlib.sha256(_pickled(value)).digest()


def sha256_cbor(value: HashInput, /) -> bytes:
    """SHA-256 of the value in canonical CBOR: 32 bytes."""
    return hashlib.sha256(_cbor(value)).digest()


def xxhash_pickle(value: HashInput, /) -> bytes:
    """xxh3-128 of the pickled value: 16 bytes, not collision resistant."""
    return xxhash.xxh3_128_digest(_pickled(value))


def xxhash_cbor(value: HashInput, /) -> bytes:
    """xxh3-128 of the value in canonical CBOR: 16 bytes, not collision resistant."""
    return xxhash.xxh3_128_digest(_cbor(value))


def hash_function(algorithm: HashAlgorithm) -> HashFunction:
    """The function of that name.

    Raises:
        ConfigError: not one of the four names.
    """
    match algorithm:
        case "sha256":
            return sha256
        case "sha256_cbor":
            return sha256_cbor
        case "xxhash":
            return xxhash_pickle
        case "xxhash_cbor":
            return xxhash_cbor
    known = ", ".join(get_args(HashAlgorithm))
    raise ConfigError(f"prefix_caching_hash_algo must be one of {known}; not {algorithm!r}")


def none_hash(algorithm: HashAlgorithm, environ: Mapping[str, str] = os.environ) -> bytes:
    """NONE_HASH = H(seed): what first blocks have for a parent.

    The seed is `PYTHONHASHSEED` if that is set. Otherwise it is a fixed string for the two
    cryptographic algorithms, so that processes agree, and 32 random bytes in hex for the other
    two: for these, whoever knows the seed could make blocks that collide.
    """
    seed = environ.get("PYTHONHASHSEED")
    if seed is None:
        seed = os.urandom(32).hex() if algorithm in ("xxhash", "xxhash_cbor") else DEFAULT_SEED
    return hash_function(algorithm)(seed)


def hash_block(
    hash_fn: HashFunction, parent_hash: bytes, token_ids: tuple[int, ...], extra_keys: ExtraKeys | None
) -> bytes:
    """The hash of one full block.

    Args:
        hash_fn: one of the four, or a function of the same shape.
        parent_hash: the hash of the block before it, or NONE_HASH.
        token_ids: the block's tokens, `[block_size]`; Python integers, since a NumPy integer of the
            same value pickles differently.
        extra_keys: from `extra_keys`; `None` when there are none, never an empty tuple.
    """
    return hash_fn((parent_hash, token_ids, extra_keys or None))


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter: its KV differs from the base model's."""

    name: str
    path: str


@dataclass(frozen=True)
class MultiModalItem:
    """An image or the like, standing in the prompt as `length` placeholder tokens from `offset` on."""

    identifier: str
    offset: int
    length: int


def extra_keys(
    start: int,
    block_size: int,
    *,
    adapter: Adapter | None = None,
    items: Sequence[MultiModalItem] = (),
    cache_salt: str | None = None,
) -> ExtraKeys | None:
    """The extra keys of the block with the tokens `start` … `start + block_size - 1`.

    In this order: `("lora", name, path)` in every block; `("mm", identifier, offset)` for each item
    that reaches into the block, with its offset from the block's first token (negative when it began
    before); `("cache_salt", salt)` in the first block alone, since the chain carries it on.

    Returns:
        The keys, or `None` if there are none.

    Raises:
        PromptError: a salt or name that is empty or that UTF-8 cannot encode.
    """
    keys: list[ExtraKey] = []
    if adapter is not None:
        keys.append(("lora", _key_text("the adapter's name", adapter.name), _interned(adapter.path)))
    for item in sorted(items, key=lambda item: item.offset):
        if item.offset < start + block_size and start < item.offset + item.length:
            keys.append(("mm", _key_text("an item's identifier", item.identifier), item.offset - start))
    if start == 0:
        keys.extend(cache_salt_keys(cache_salt) or ())
    return tuple(keys) or None


def cache_salt_keys(cache_salt: str | None) -> ExtraKeys | None:
    """The extra keys of a first block that has a salt and nothing else; `None` without a salt.

    Raises:
        PromptError: a salt that is not a string, is empty, or that UTF-8 cannot encode.
    """
    return None if cache_salt is None else (("cache_salt", _key_text("cache_salt", cache_salt)),)


class PrefixHasher:
    """One engine's block hashes: an algorithm, and the NONE_HASH that its chains begin with.

    Each engine owns one; nothing is shared between engines.

    Args:
        algorithm: one of the four names.
        environ: where `PYTHONHASHSEED` is looked up.
        hash_fn: another hash function in the algorithm's place: one that always collides shows that
            hits are verified. The seed is still the algorithm's.

    Attributes:
        algorithm: as given.
        none_hash: the parent of first blocks.
    """

    def __init__(
        self,
        algorithm: HashAlgorithm = "sha256",
        *,
        environ: Mapping[str, str] = os.environ,
        hash_fn: HashFunction | None = None,
    ) -> None:
        self.algorithm: HashAlgorithm = algorithm
        self.none_hash = none_hash(algorithm, environ)
        self._hash_fn = hash_fn or hash_function(algorithm)

    def hash_block(
        self, parent_hash: bytes | None, token_ids: tuple[int, ...], extra_keys: ExtraKeys | None = None
    ) -> bytes:
        """The hash of one full block; `parent_hash=None` stands for a first block."""
        parent = self.none_hash if parent_hash is None else parent_hash
        return hash_block(self._hash_fn, parent, token_ids, extra_keys)


def _pickled(value: HashInput) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def _cbor(value: HashInput) -> bytes:
    return cbor2.dumps(value, canonical=True)


def _key_text(what: str, text: str) -> str:
    if not isinstance(text, str) or not text:
        raise PromptError(f"{what} must be a string of at least one character, not {text!r}")
    return _interned(text)


def _interned(text: str) -> str:
    """One object for each value, so that pickle's bytes depend on the value alone."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PromptError(f"{text!r} cannot be encoded as UTF-8: {error.reason}") from None
    return sys.intern(str(text))
