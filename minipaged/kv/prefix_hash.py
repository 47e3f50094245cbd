"""Block hashes: 16 or 32 bytes that identify a full block's tokens and all tokens before them.

    block_hash = H((parent_hash, token_ids, extra_keys))

The parent's hash covers the whole prefix. So two blocks with the same tokens after different prefixes
have different hashes. A sequence's first block has the parent hash `NONE_HASH`.

There are four algorithms. They have the same names as vLLM's, and produce the same bytes:

| name          | bytes that are hashed                 | hash     | digest   |
|---------------|---------------------------------------|----------|----------|
| `sha256`      | pickle, highest protocol              | SHA-256  | 32 bytes |
| `sha256_cbor` | canonical CBOR (RFC 8949, section 4.2) | SHA-256  | 32 bytes |
| `xxhash`      | pickle, highest protocol              | xxh3-128 | 16 bytes |
| `xxhash_cbor` | canonical CBOR                        | xxh3-128 | 16 bytes |

The two that pickle give equal hashes only among Python versions with the same highest protocol (5 from
Python 3.8 to at least 3.14). To share hashes between programs, use `sha256_cbor`.

There is a second problem with pickle. If the same object occurs twice in a value, pickle writes it once, and
then a reference to it. If two different objects are equal, pickle writes both in full. The keys made here are
interned, so that equal keys always give equal bytes.

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
"""What must be equal, in addition to the tokens, for two blocks to match: an adapter, images, a salt."""

HashInput = tuple[bytes, tuple[int, ...], ExtraKeys | None] | str

DEFAULT_SEED = "vllm-none-hash"


class HashFunction(Protocol):
    """Hashes a block, given as (parent hash, token ids, extra keys). It also hashes the seed string."""

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
    """The hash function of this name.

    Raises:
        ConfigError: `algorithm` is not one of the four names.
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
    """NONE_HASH = H(seed): the parent hash of first blocks.

    The seed is `PYTHONHASHSEED` if that is set. Otherwise the seed depends on the algorithm. The two
    cryptographic algorithms use a fixed string, so that processes agree. The two xxhash algorithms use 32
    random bytes in hex, because an attacker who knew the seed could make blocks that collide.
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
        hash_fn: one of the four hash functions, or another with the same signature.
        parent_hash: the hash of the block before this one, or NONE_HASH.
        token_ids: the block's tokens, `[block_size]`. They must be Python integers: a NumPy integer of
            the same value pickles differently.
        extra_keys: the result of `extra_keys`. An empty tuple is hashed as `None`.
    """
    return hash_fn((parent_hash, token_ids, extra_keys or None))


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter. The keys and values that it leads to differ from the base model's."""

    name: str
    path: str


@dataclass(frozen=True)
class MultiModalItem:
    """An image or the like. In the prompt, `length` placeholder tokens from `offset` on stand for it."""

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
    """The extra keys of the block with the tokens `start` to `start + block_size - 1`.

    The keys come in this order:

    - `("lora", name, path)` in every block.
    - `("mm", identifier, offset)` for each item that overlaps the block. The offset counts from the
      block's first token, and is negative if the item begins before the block.
    - `("cache_salt", salt)` in the first block only: later hashes depend on it through their parents.

    Returns:
        The keys, or `None` if there are none.

    Raises:
        PromptError: a salt or name is empty, or UTF-8 cannot encode it.
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
    """The extra keys of a first block whose only extra key is a salt; `None` without a salt.

    Raises:
        PromptError: the salt is not a string, is empty, or cannot be encoded as UTF-8.
    """
    return None if cache_salt is None else (("cache_salt", _key_text("cache_salt", cache_salt)),)


class PrefixHasher:
    """Computes the block hashes of one engine. Each engine has its own hasher.

    Args:
        algorithm: one of the four names.
        environ: the environment variables in which `PYTHONHASHSEED` is looked up.
        hash_fn: replaces the algorithm's hash function for blocks, but not for the seed. Tests pass one
            that always collides, to show that hits are verified.

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
        """The hash of one full block. `parent_hash` is `None` for a sequence's first block."""
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
    """The interned string: one object for each value, so that pickle's bytes depend only on the value."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PromptError(f"{text!r} cannot be encoded as UTF-8: {error.reason}") from None
    return sys.intern(str(text))
