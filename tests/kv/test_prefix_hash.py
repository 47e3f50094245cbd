"""Block hashes, byte for byte, compared with fixed digests (some of them vLLM's) and a second computation."""

from __future__ import annotations

import hashlib
import pickle
from typing import cast

import cbor2
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from minipaged.choices import HashAlgorithm
from minipaged.errors import ConfigError, PromptError
from minipaged.kv.prefix_hash import (
    Adapter,
    HashInput,
    MultiModalItem,
    PrefixHasher,
    cache_salt_keys,
    extra_keys,
    hash_block,
    hash_function,
    none_hash,
)

ALGORITHMS: tuple[HashAlgorithm, ...] = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
DEFAULT_SEED = "vllm-none-hash"

# For each algorithm: the hash of the seed "vllm-none-hash"; of the block (1, 2, 3, 70000) after it,
# without keys; of (4, 5, 6, 7) after that, with one key of each kind. The pickled ones are those of
# protocol 5.
KEYS = (("lora", "math", "/a/math"), ("mm", "img-1", -2), ("cache_salt", "s"))
GOLDEN: dict[HashAlgorithm, tuple[str, str, str]] = {
    "sha256": (
        "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198",
        "09621e0774d342211ccf9dc7953d145970157425498a104503a0fa357b95c5a1",
        "146cf38c132658a104386134d5d1590958b316443a7ca6bba10813f964493323",
    ),
    "sha256_cbor": (
        "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0",
        "217188a030cfcfbe62542f24fcfb76b6574acf671fe3ed892f344f827e55a026",
        "88de5037e5868bbf4a9e3624dc0ba697da66a2536582de2bdd6419b6f668d05b",
    ),
    "xxhash": (
        "d98f72b9c430d985211489af307f0229",
        "25bbcb61b27df99e67002c0be9f535f0",
        "b15170721769402ecb952e5db9a85278",
    ),
    "xxhash_cbor": (
        "a4e364baa0791a6f63bbf917db9b700d",
        "9050c60eb06690e1cd894089841a0c85",
        "800da4b55a8cae50b450ea855726b178",
    ),
}


def computed_again(algorithm: HashAlgorithm, value: object) -> bytes:
    """A second implementation of the definition."""
    encoded = cbor2.dumps(value, canonical=True) if algorithm.endswith("cbor") else pickle.dumps(value, -1)
    if algorithm.startswith("sha256"):
        return hashlib.sha256(encoded).digest()
    return xxhash.xxh3_128(encoded).digest()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_golden_digests(algorithm: HashAlgorithm) -> None:
    if not algorithm.endswith("cbor"):
        assert pickle.HIGHEST_PROTOCOL == 5, "another protocol: the pickled digests change, as documented"
    seed, first, second = (bytes.fromhex(digest) for digest in GOLDEN[algorithm])
    hasher = PrefixHasher(algorithm, environ={"PYTHONHASHSEED": DEFAULT_SEED})
    assert hasher.none_hash == seed
    assert hasher.hash_block(None, (1, 2, 3, 70000)) == first
    keys = extra_keys(
        0,
        4,
        adapter=Adapter("math", "/a/math"),
        items=[MultiModalItem("img-1", offset=-2, length=3)],
        cache_salt="s",
    )
    assert keys == KEYS
    assert hasher.hash_block(first, (4, 5, 6, 7), keys) == second


def test_digests_of_vllm_itself() -> None:
    """`hash_block_tokens` with `sha256_cbor`, `PYTHONHASHSEED` unset, as vLLM computes it."""
    hasher = PrefixHasher("sha256_cbor", environ={})
    first = hasher.hash_block(None, (1, 2, 3, 4))
    assert first.hex() == "58d0879dff3800f65f8c5fd449d73048c0f7699dd238a03b84b146b151d55111"
    second = hasher.hash_block(first, (5, 6, 7, 8))
    assert second.hex() == "e1bc29393a2da9fd798f35ff04d215f846aee6df4b803ce3d43b57df56b58fb1"
    # The second block of a prompt with an adapter and an image of 5 tokens at offset 0.
    parent = bytes.fromhex("280bce663478b44320e68be593605214c94f7648ac34b4b94274fdcd0f2a8a04")
    keys = extra_keys(
        4,
        4,
        adapter=Adapter("adapter", "/adapters/adapter"),
        items=[MultiModalItem("mm-abc", offset=0, length=5)],
        cache_salt="salt-1",
    )
    with_keys = hasher.hash_block(parent, (5, 6, 7, 8), keys)
    assert with_keys.hex() == "33e7394e25b7be46c7bf0c090da02e903b4e9d9536b1c18eed4d6e57e7a3658a"
    # Token ids of one, two and four bytes in CBOR.
    tokens = tuple((i * 7919 + 13) % 152_064 for i in range(256))
    long_first = hasher.hash_block(None, tokens[:128])
    assert long_first.hex() == "3c922374e6fe67f3c64e75b88a3b8bd6185b538f7019674b72aefbf8dd8754f8"
    long_second = hasher.hash_block(long_first, tokens[128:])
    assert long_second.hex() == "2e69fa8c8aebe362593b51b8b212f1aeb45f9bb56c4258c0bf2a94f1e384e2a5"


@given(
    parent=st.binary(min_size=16, max_size=32),
    token_ids=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20).map(tuple),
    salt=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_same_as_computed_again(parent: bytes, token_ids: tuple[int, ...], salt: str | None) -> None:
    keys = extra_keys(0, len(token_ids), cache_salt=salt)
    expected_keys = None if salt is None else (("cache_salt", salt),)
    for algorithm in ALGORITHMS:
        expected = computed_again(algorithm, (parent, token_ids, expected_keys))
        if salt == "cache_salt":
            continue  # pickle writes a repeated string as a reference: see the test of equal keys
        assert hash_block(hash_function(algorithm), parent, token_ids, keys) == expected


@pytest.mark.parametrize(("algorithm", "length"), list(zip(ALGORITHMS, (32, 32, 16, 16), strict=True)))
def test_digest_lengths(algorithm: HashAlgorithm, length: int) -> None:
    hasher = PrefixHasher(algorithm, environ={})
    assert len(hasher.none_hash) == length
    assert len(hasher.hash_block(None, (1,))) == length


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
def test_cryptographic_chains_begin_alike_in_every_process(algorithm: HashAlgorithm) -> None:
    assert none_hash(algorithm, {}) == none_hash(algorithm, {}) == computed_again(algorithm, DEFAULT_SEED)


@pytest.mark.parametrize("algorithm", ["xxhash", "xxhash_cbor"])
def test_xxhash_chains_begin_at_random(algorithm: HashAlgorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    assert none_hash(algorithm, {}) != none_hash(algorithm, {})
    monkeypatch.setattr("os.urandom", lambda n: bytes(range(n)))
    assert none_hash(algorithm, {}) == computed_again(algorithm, bytes(range(32)).hex())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", ["0", "", "random"])
def test_pythonhashseed_is_the_seed_whenever_it_is_set(algorithm: HashAlgorithm, seed: str) -> None:
    assert none_hash(algorithm, {"PYTHONHASHSEED": seed}) == computed_again(algorithm, seed)


def test_the_environment_is_read_when_the_hasher_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert PrefixHasher("xxhash").none_hash == computed_again("xxhash", "7")


def test_unknown_algorithm() -> None:
    with pytest.raises(ConfigError, match=r"sha256, sha256_cbor, xxhash, xxhash_cbor; not 'md5'"):
        hash_function(cast(HashAlgorithm, "md5"))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_everything_counts(algorithm: HashAlgorithm) -> None:
    hasher = PrefixHasher(algorithm, environ={})
    hashes = [
        hasher.hash_block(None, (1, 2)),
        hasher.hash_block(None, (2, 1)),
        hasher.hash_block(None, (1, 2), cache_salt_keys("a")),
        hasher.hash_block(None, (1, 2), cache_salt_keys("b")),
        hasher.hash_block(None, (1, 2), extra_keys(0, 2, adapter=Adapter("a", "a"))),
        hasher.hash_block(hasher.hash_block(None, (1, 2)), (1, 2)),
    ]
    assert len(set(hashes)) == len(hashes)


def test_no_keys_are_none_not_an_empty_tuple() -> None:
    hasher = PrefixHasher("sha256", environ={})
    assert extra_keys(0, 16) is None
    assert hasher.hash_block(None, (1,), ()) == hasher.hash_block(None, (1,), None)


def test_the_salt_is_in_the_first_block_alone() -> None:
    assert extra_keys(0, 4, cache_salt="s") == cache_salt_keys("s") == (("cache_salt", "s"),)
    assert extra_keys(4, 4, cache_salt="s") is None
    assert cache_salt_keys(None) is None


def test_the_adapter_is_in_every_block() -> None:
    adapter = Adapter("name", "/path")
    assert [extra_keys(start, 4, adapter=adapter) for start in (0, 4)] == [(("lora", "name", "/path"),)] * 2


def test_an_item_is_in_the_blocks_that_it_reaches_into() -> None:
    # Two items in blocks of 4: tokens 2 to 5, and token 8. Given in the wrong order.
    items = [MultiModalItem("b", offset=8, length=1), MultiModalItem("a", offset=2, length=4)]
    keys = [extra_keys(start, 4, items=items) for start in (0, 4, 8, 12)]
    assert keys == [(("mm", "a", 2),), (("mm", "a", -2),), (("mm", "b", 0),), None]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_equal_keys_give_equal_bytes_whatever_objects_they_are(algorithm: HashAlgorithm) -> None:
    """Pickle writes a repeated object as a reference: equal strings must be one object."""

    def fresh(text: str) -> str:
        return text.encode().decode()

    hash_fn = hash_function(algorithm)
    text = "cache_salt"
    assert fresh(text) is not text
    one, two = cache_salt_keys(text), cache_salt_keys(fresh(text))
    assert hash_block(hash_fn, b"", (1,), one) == hash_block(hash_fn, b"", (1,), two)
    one = extra_keys(0, 1, adapter=Adapter("name!", "name!"))
    two = extra_keys(0, 1, adapter=Adapter("name!", fresh("name!")))
    assert hash_block(hash_fn, b"", (1,), one) == hash_block(hash_fn, b"", (1,), two)


@pytest.mark.parametrize("salt", ["", "\ud800", 5, b"s"])
def test_a_salt_that_cannot_be_one(salt: object) -> None:
    with pytest.raises(PromptError):
        cache_salt_keys(cast(str, salt))


def test_another_hash_function_in_the_algorithms_place() -> None:
    def constant(value: HashInput, /) -> bytes:
        return b"always"

    hasher = PrefixHasher("sha256", environ={}, hash_fn=constant)
    assert hasher.hash_block(None, (1,)) == hasher.hash_block(b"x", (2,)) == b"always"
    assert hasher.none_hash == PrefixHasher("sha256", environ={}).none_hash
