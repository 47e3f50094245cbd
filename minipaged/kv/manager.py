"""KVManager: the interface through which the scheduler gives KV memory to sequences.

Each `kv_layout` setting has its own manager: `kv.block_manager.BlockManager`,
`baseline.contiguous_manager.ContiguousManager` and `baseline.uncached_manager.UncachedManager`. Methods for
features that only some layouts have, such as prefix reuse, do nothing by default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.kv.cache import BlockCopy
from minipaged.kv.prefix_cache import CachedBlock
from minipaged.request import Request, Sequence


class KVManager(ABC):
    """Finds memory for sequences, or says that there is too little.

    Attributes:
        num_blocks: the size of the KV memory in blocks, the null block included.
        block_size: tokens per block.
    """

    num_blocks: int
    block_size: int

    @abstractmethod
    def admit(self, request: Request, hits: list[CachedBlock]) -> bool:
        """Admit a waiting request if it fits, and begin its first unfinished sequence.

        Args:
            request: a request whose sequences hold no memory.
            hits: the cached blocks that `find_prefix` found for its first unfinished sequence.

        Returns:
            Whether the request was admitted. If not, nothing has changed.
        """

    @abstractmethod
    def begin(self, request: Request, seq: Sequence, hits: list[CachedBlock]) -> None:
        """Begin a sequence of an admitted request without forking it from another sequence."""

    @abstractmethod
    def append(self, seq: Sequence, num_tokens: int) -> list[BlockCopy] | None:
        """Get memory for the keys and values of the next `num_tokens` tokens.

        Returns:
            The block copies to do before these tokens are computed. `None` if there is too little
            memory now; then nothing has changed.
        """

    @abstractmethod
    def fork(self, parent: Sequence, child: Sequence, num_tokens: int) -> None:
        """Let `child` continue from the first `num_tokens` tokens of `parent`.

        `child` holds no memory yet. `parent` has computed these tokens, and both sequences begin with
        them.
        """

    @abstractmethod
    def free(self, seq: Sequence) -> None:
        """Free the memory of a sequence, if it holds any. Afterwards the sequence has no computed tokens."""

    @abstractmethod
    def free_request(self, request: Request) -> None:
        """Free the memory of all sequences of a request, and the memory reserved for its later sequences."""

    # Whether requests fit

    @abstractmethod
    def check_fits(self, num_prompt_tokens: int, max_tokens: int, num_seqs: int, kind: str) -> None:
        """Refuse a request that could not be admitted, or could not finish, even if it ran alone.

        Args:
            num_prompt_tokens: tokens of the prompt.
            max_tokens: the most output tokens of each sequence.
            num_seqs: the number of samples or beams.
            kind: `"samples"` or `"beams"`, for the message.

        Raises:
            RequestTooLargeError: the request does not fit; the message shows the arithmetic.
        """

    @abstractmethod
    def surely_fit(self, requests: Iterable[Request]) -> bool:
        """Whether all these requests can reach their maximum lengths together without a preemption.

        Args:
            requests: the running requests, and the one that is about to join them.
        """

    # How much memory there is, and how much is used

    @property
    @abstractmethod
    def num_free_blocks(self) -> int:
        """The memory that can be handed out now, in whole blocks."""

    @property
    @abstractmethod
    def usage(self) -> float:
        """The share of the usable memory that is in use, 0 to 1."""

    @property
    def num_blocks_in_tables(self) -> int:
        """The number of blocks that at least one block table names."""
        return 0

    @abstractmethod
    def breakdown(self, running: Iterable[Request], next_request: Request | None) -> MemoryBreakdown:
        """How the memory is used at this moment.

        Args:
            running: the requests that hold memory.
            next_request: the waiting request that will be admitted next, or `None`.
        """

    @abstractmethod
    def check_invariants(self, requests: Iterable[Request]) -> None:
        """Check that the manager's bookkeeping matches the memory that all unfinished requests hold.

        Raises:
            InvariantError: the two disagree, which is a bug.
        """

    # Prefix reuse. A layout without blocks cannot reuse prefixes, and keeps these defaults.

    @property
    def caches_prefixes(self) -> bool:
        """Whether full blocks can be found again."""
        return False

    def find_prefix(self, seq: Sequence, cache_salt: str | None) -> list[CachedBlock]:
        """The cached blocks that hold the beginning of `seq`."""
        return []

    def cache_full_blocks(self, seq: Sequence, num_tokens: int, cache_salt: str | None) -> None:  # noqa: B027
        """Cache the blocks that the first `num_tokens` tokens of `seq` fill."""

    def forget_uncomputed(self, seq: Sequence) -> None:  # noqa: B027
        """Uncache the blocks of `seq` that `cache_full_blocks` cached but that were never computed."""

    def reset_prefix_cache(self) -> None:  # noqa: B027
        """Forget every cached block."""
