"""KVManager: what the scheduler needs of whoever divides the KV memory among sequences.

There is one for each `kv_layout`: `block_manager.BlockManager`, `contiguous.ContiguousManager` and
`uncached.UncachedManager`. What a layout does not have, it need not mention.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.kv.cache import BlockCopy
from minipaged.kv.prefix_cache import CachedBlock
from minipaged.request import Request, Sequence


class KVManager(ABC):
    """Finds room for sequences, or says that there is none.

    Attributes:
        num_blocks: the KV memory in blocks, the null block included.
        block_size: tokens per block.
    """

    num_blocks: int
    block_size: int

    @abstractmethod
    def admit(self, request: Request, hits: list[CachedBlock]) -> bool:
        """Let a waiting request in, if there is room, and begin its first unfinished sequence.

        Args:
            request: one whose sequences hold nothing.
            hits: what `find_prefix` found for that sequence.

        Returns:
            Whether it is in; if not, nothing has changed.
        """

    @abstractmethod
    def begin(self, request: Request, seq: Sequence, hits: list[CachedBlock]) -> None:
        """Begin a sequence of an admitted request that has nothing to fork from."""

    @abstractmethod
    def append(self, seq: Sequence, num_tokens: int) -> list[BlockCopy] | None:
        """Make room for the keys and values of the next `num_tokens` tokens.

        Returns:
            The block copies to do before they are computed; `None`, with nothing changed, if there
            is no room now.
        """

    @abstractmethod
    def fork(self, parent: Sequence, child: Sequence, num_tokens: int) -> None:
        """Let `child`, which holds nothing, go on from the parent's first `num_tokens`, which are
        computed and which both agree on."""

    @abstractmethod
    def free(self, seq: Sequence) -> None:
        """Give up what a sequence holds, if anything. It has no computed tokens then."""

    def free_request(self, request: Request) -> None:
        """Give up all that a request holds, if anything."""
        for seq in request.sequences:
            self.free(seq)

    # Whether requests fit

    @abstractmethod
    def check_fits(self, num_prompt_tokens: int, max_tokens: int, num_seqs: int, kind: str) -> None:
        """Refuse what could never be admitted, or never end, even alone.

        Args:
            num_prompt_tokens: tokens of the prompt.
            max_tokens: most output tokens of each sequence.
            num_seqs: samples or beams.
            kind: `"samples"` or `"beams"`, for the message.

        Raises:
            RequestTooLargeError: with the arithmetic.
        """

    @abstractmethod
    def surely_fit(self, requests: Iterable[Request]) -> bool:
        """Whether running requests, and one that is to join them, can all get to their greatest
        lengths with no one being preempted."""

    # What there is, and what is used

    @property
    @abstractmethod
    def num_free_blocks(self) -> int:
        """Whole blocks' worth of memory that can be handed out."""

    @property
    @abstractmethod
    def usage(self) -> float:
        """The share of the memory that can be handed out and is, 0 to 1."""

    @property
    def num_blocks_in_tables(self) -> int:
        """Blocks that at least one block table names."""
        return 0

    @abstractmethod
    def breakdown(self, running: Iterable[Request], next_request: Request | None) -> MemoryBreakdown:
        """How the memory divides at this moment.

        Args:
            running: the requests that hold some.
            next_request: the one that will be admitted next, if any waits.
        """

    @abstractmethod
    def check_invariants(self, requests: Iterable[Request]) -> None:
        """Compare the memory with what all unfinished requests hold.

        Raises:
            InvariantError: a bug.
        """

    # Prefix reuse. A layout without blocks has none, and leaves these as they are.

    @property
    def caches_prefixes(self) -> bool:
        """Whether full blocks can be found again."""
        return False

    def find_prefix(self, seq: Sequence, cache_salt: str | None) -> list[CachedBlock]:
        """The cached blocks that hold the beginning of `seq`."""
        return []

    def cache_full_blocks(self, seq: Sequence, num_tokens: int, cache_salt: str | None) -> None:  # noqa: B027
        """Make the blocks findable that the first `num_tokens` of `seq` fill."""

    def forget_uncomputed(self, seq: Sequence) -> None:  # noqa: B027
        """Take back what `cache_full_blocks` promised beyond the tokens really computed."""

    def reset_prefix_cache(self) -> None:  # noqa: B027
        """Forget every cached block."""
