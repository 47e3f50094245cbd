"""PoolMeter: statistics of a run's pool, from one snapshot per step."""

from __future__ import annotations

from minipaged.view.pool_snapshot import PoolSnapshot


class PoolMeter:
    """Collects statistics from one snapshot per step.

    For comparison it also counts the slots of an imaginary pool without paging. There each running sequence
    reserves `max_model_len` contiguous slots and shares nothing.

    Args:
        max_model_len: slots that the imaginary pool reserves for each sequence.
    """

    def __init__(self, max_model_len: int) -> None:
        self._max_model_len = max_model_len
        self._num_snapshots = 0
        self._slots = 0
        self._unused = 0
        self._reserved = 0
        self._reserved_unused = 0
        self.peak_used = 0
        """Largest number of blocks in use."""
        self.peak_shared = 0
        """Largest number of blocks with more than one holder."""
        self.peak_running = 0
        """Largest number of sequences that ran at once."""

    def add(self, snapshot: PoolSnapshot) -> None:
        """Count one step. A step without running sequences is left out."""
        sequences = snapshot.running_sequences
        if not sequences:
            return
        self._num_snapshots += 1
        self.peak_used = max(self.peak_used, snapshot.num_used)
        self.peak_shared = max(self.peak_shared, snapshot.num_shared)
        self.peak_running = max(self.peak_running, len(sequences))
        self._slots += snapshot.num_used * snapshot.block_size
        self._unused += snapshot.num_unused_slots
        reserved = len(sequences) * self._max_model_len
        self._reserved += reserved
        self._reserved_unused += reserved - sum(seq.num_computed_tokens for seq in sequences)

    @property
    def mean_slots(self) -> float:
        """Mean number of slots in used blocks, over the steps."""
        return self._mean(self._slots)

    @property
    def mean_unused(self) -> float:
        """Mean number of slots in used blocks that hold no token."""
        return self._mean(self._unused)

    @property
    def mean_reserved(self) -> float:
        """Mean number of slots that the pool without paging would have reserved."""
        return self._mean(self._reserved)

    @property
    def mean_reserved_unused(self) -> float:
        """Mean number of reserved slots that would have held no token."""
        return self._mean(self._reserved_unused)

    def _mean(self, total: int) -> float:
        return total / self._num_snapshots if self._num_snapshots else 0.0
