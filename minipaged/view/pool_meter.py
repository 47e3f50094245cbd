"""PoolMeter: what a run did with its pool, summed up over snapshots."""

from __future__ import annotations

from minipaged.view.pool_snapshot import PoolSnapshot


class PoolMeter:
    """Adds up snapshots, one for each step.

    Beside the real pool it keeps the account of a pool without paging, in which each running
    sequence has `max_model_len` slots reserved in one piece and shares nothing.

    Args:
        max_model_len: slots that would be reserved for each sequence.
    """

    def __init__(self, max_model_len: int) -> None:
        self._max_model_len = max_model_len
        self._num_snapshots = 0
        self._slots = 0
        self._unused = 0
        self._reserved = 0
        self._reserved_unused = 0
        self.peak_used = 0
        """Most blocks in use."""
        self.peak_shared = 0
        """Most blocks with more than one holder."""
        self.peak_running = 0
        """Most sequences running at once."""

    def add(self, snapshot: PoolSnapshot) -> None:
        """Count one step. One in which nothing runs any more says nothing, and is left out."""
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
        """Slots in used blocks, on average over the steps."""
        return self._mean(self._slots)

    @property
    def mean_unused(self) -> float:
        """Those of them that hold nothing."""
        return self._mean(self._unused)

    @property
    def mean_reserved(self) -> float:
        """Slots that reservation would have taken for the same running sequences."""
        return self._mean(self._reserved)

    @property
    def mean_reserved_unused(self) -> float:
        """Those of them that would have held nothing."""
        return self._mean(self._reserved_unused)

    def _mean(self, total: int) -> float:
        return total / self._num_snapshots if self._num_snapshots else 0.0
