"""Random numbers without a state.

A generator has a state that advances with every draw, so whatever disturbs the order of the draws
(a preempted request that is computed again, another batch) changes the result. A counter-based
generator has none: the number is a hash of *which* draw it is (Salmon et al., "Parallel Random
Numbers: As Easy as 1, 2, 3", SC 2011). Here the hash is BLAKE2b, which Python has built in; its
64 bits are cut to the 53 that a float holds.
"""

from __future__ import annotations

import hashlib
import struct

_WORD = 2**64
_KEY = b"minipaged.uniform"


def uniform(seed: int, sample_index: int, position: int) -> float:
    """The random number for one token, the same whenever and wherever it is asked for.

    Args:
        seed: the request's seed. Taken modulo 2**64, so any integer will do.
        sample_index: which of the request's `n` samples, from 0.
        position: which token of the output, from 0.

    Returns:
        A multiple of 2**-53 in [0, 1).
    """
    counter = struct.pack("<3Q", seed % _WORD, sample_index % _WORD, position % _WORD)
    digest = hashlib.blake2b(counter, digest_size=8, key=_KEY).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
