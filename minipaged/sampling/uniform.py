"""Random numbers without a state.

An ordinary generator has a state that advances with every draw. So its numbers depend on the order of the
draws, which changes when a request is preempted and computed again, or runs in another batch. A counter-based
generator has no state: each number is a hash of the place where it is used, here the seed, the sample and the
position (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011). The hash used here is
Python's built-in BLAKE2b. 53 of its 64 bits fit into a float, and only these are used.
"""

from __future__ import annotations

import hashlib
import struct

_WORD = 2**64
_KEY = b"minipaged.uniform"


def uniform(seed: int, sample_index: int, position: int) -> float:
    """The random number for one token. It depends only on the arguments.

    Args:
        seed: the request's seed. Any integer is allowed; it is taken modulo 2**64.
        sample_index: the number of the sample within its request, from 0.
        position: the position of the token in the output, from 0.

    Returns:
        A multiple of 2**-53 in [0, 1).
    """
    counter = struct.pack("<3Q", seed % _WORD, sample_index % _WORD, position % _WORD)
    digest = hashlib.blake2b(counter, digest_size=8, key=_KEY).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
