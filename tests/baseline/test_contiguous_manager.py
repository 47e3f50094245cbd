"""ContiguousManager: regions are reserved for a request's whole life, and forks are copies."""

from __future__ import annotations

import pytest
import torch

from minipaged.baseline.buddy import BuddyAllocator
from minipaged.baseline.contiguous_manager import ContiguousManager
from minipaged.baseline.first_fit import FirstFitAllocator
from minipaged.baseline.region_allocator import Region
from minipaged.choices import ReserveRule
from minipaged.errors import InvariantError, RequestTooLargeError
from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.kv.cache import KVCache
from minipaged.request import Request, RequestStatus, Sequence
from minipaged.sampling.params import SamplingParams


class Fixture:
    """A manager with some slots, and a list of the copies that it made."""

    def __init__(self, num_slots: int, reserve: ReserveRule = "oracle", *, buddy: bool = False) -> None:
        self.copies: list[tuple[int, int, int]] = []
        self.manager = ContiguousManager(
            BuddyAllocator(num_slots) if buddy else FirstFitAllocator(num_slots),
            4,
            reserve=reserve,
            max_model_len=24,
            copy_slots=lambda source, target, num_slots: self.copies.append((source, target, num_slots)),
        )
        self.running: list[Request] = []

    def admit(self, num_prompt: int, max_tokens: int, n: int = 1) -> Request | None:
        """Admit a new request as the scheduler would."""
        params = SamplingParams(n=n, max_tokens=max_tokens)
        request = Request(f"{num_prompt}+{max_tokens}", [1] * num_prompt, params, max_tokens, 0, 0)
        if not self.manager.admit(request, []):
            return None
        request.status = RequestStatus.RUNNING
        self.running.append(request)
        self.check()
        return request

    def fork(self, request: Request) -> list[Sequence]:
        """Compute the prompt, and make the other samples."""
        parent = request.sequences[0]
        parent.num_computed_tokens = parent.num_prompt_tokens
        for index in range(1, request.params.n):
            child = Sequence(request.prompt_token_ids, index)
            self.manager.fork(parent, child, parent.num_computed_tokens)
            request.sequences.append(child)
        self.check()
        return request.sequences

    def end(self, request: Request) -> None:
        self.manager.free_request(request)
        request.status = RequestStatus.FINISHED
        self.running.remove(request)
        self.check()

    def check(self) -> None:
        self.manager.check_invariants(self.running)


def some(request: Request | None) -> Request:
    assert request is not None
    return request


@pytest.mark.parametrize(
    ("reserve", "sizes"), [("max", [24, 24]), ("pow2", [3 + 8, 9 + 4]), ("oracle", [3 + 5 - 1, 9 + 4 - 1])]
)
def test_a_region_is_reserved_for_the_whole_life(reserve: ReserveRule, sizes: list[int]) -> None:
    fixture = Fixture(50, reserve)
    first, second = some(fixture.admit(3, 5)), some(fixture.admit(9, 4))
    regions = [request.sequences[0].region for request in (first, second)]
    assert regions == [Region(0, sizes[0]), Region(sizes[0], sizes[1])]
    assert fixture.manager.append(first.sequences[0], 7) == []
    assert fixture.manager.usage == sum(sizes) / 50
    assert fixture.manager.num_free_blocks == (50 - sum(sizes)) // 4
    fixture.end(first)
    assert some(fixture.admit(3, 5)).sequences[0].region == regions[0]


def test_all_samples_or_none() -> None:
    fixture = Fixture(29)
    assert fixture.admit(3, 8, n=3) is None, "3 x 10 slots"
    assert fixture.manager.allocator.num_free_slots == 29
    fixture.check()
    group = some(fixture.admit(2, 8, n=3))
    assert fixture.manager.allocator.num_free_slots == 2
    assert [seq.region for seq in fixture.fork(group)] == [Region(0, 9), Region(9, 9), Region(18, 9)]
    assert fixture.copies == [(0, 9, 2), (0, 18, 2)]


def test_a_sample_that_ends_gives_its_region_back_and_a_beam_leaves_it_to_the_next() -> None:
    fixture = Fixture(40)
    group = some(fixture.admit(2, 9, n=3))
    seqs = fixture.fork(group)
    seqs[1].finish_reason = "stop"
    fixture.manager.free(seqs[1])
    fixture.check()
    assert fixture.manager.allocator.num_free_slots == 40 - 20
    fixture.manager.free(seqs[2])  # a beam without children
    assert fixture.manager.allocator.num_free_slots == 40 - 20
    child = Sequence([1, 1], 2)
    group.sequences = [seqs[0], child]
    fixture.manager.fork(seqs[0], child, 2)
    assert (child.region, child.num_computed_tokens) == (Region(20, 10), 2)
    fixture.check()
    fixture.end(group)
    assert fixture.manager.allocator.num_free_slots == 40


def test_freeing_twice_is_harmless() -> None:
    fixture = Fixture(40)
    request = some(fixture.admit(2, 9))
    fixture.end(request)
    fixture.manager.free(request.sequences[0])
    fixture.manager.free_request(request)
    fixture.check()


def test_a_request_that_can_never_fit() -> None:
    fixture = Fixture(47, "max")
    fixture.manager.check_fits(3, 4, 1, "samples")
    with pytest.raises(RequestTooLargeError, match=r"2 samples .* 24 slots each .* 47 slots has room for 1"):
        fixture.manager.check_fits(3, 4, 2, "samples")
    Fixture(48, "max").manager.check_fits(3, 4, 2, "samples")
    with pytest.raises(RequestTooLargeError, match="48 slots has room for 1"):
        Fixture(48, "max", buddy=True).manager.check_fits(3, 4, 2, "beams")


@pytest.mark.parametrize("buddy", [False, True])
def test_what_is_accepted_is_admitted_when_alone(buddy: bool) -> None:
    for num_slots in range(24, 80):
        for n in range(1, 6):
            fixture = Fixture(num_slots, buddy=buddy)
            try:
                fixture.manager.check_fits(7, 5, n, "samples")
            except RequestTooLargeError:
                assert fixture.admit(7, 5, n) is None
            else:
                assert fixture.admit(7, 5, n) is not None


def test_the_breakdown_counts_the_next_request() -> None:
    fixture = Fixture(30, "pow2")
    first = some(fixture.admit(3, 5))  # 11 slots, 7 of them useful
    second = some(fixture.admit(3, 5))
    first.sequences[0].num_computed_tokens = 4
    waiting = Request("w", [1] * 3, SamplingParams(), 5, 0, 0)
    breakdown = fixture.manager.breakdown
    assert breakdown(fixture.running, None) == MemoryBreakdown(4, 3 + 7, 8, 0, 8)
    assert breakdown(fixture.running, waiting) == MemoryBreakdown(4, 3 + 7, 8, 8, 0)
    fixture.end(second)
    assert breakdown(fixture.running, waiting) == MemoryBreakdown(4, 3, 4, 0, 19)


def test_a_leak_is_an_invariant_error() -> None:
    fixture = Fixture(40)
    request = some(fixture.admit(2, 9))
    fixture.manager.allocator.allocate(3)
    with pytest.raises(InvariantError, match="the reserved regions are"):
        fixture.check()
    fixture = Fixture(40)
    request = some(fixture.admit(2, 9))
    request.status = RequestStatus.WAITING
    with pytest.raises(InvariantError, match="not those that run"):
        fixture.check()
    request.status = RequestStatus.RUNNING
    request.sequences[0].num_computed_tokens = 11
    with pytest.raises(InvariantError, match="beyond its region"):
        fixture.check()
    request.sequences[0] = Sequence([1, 1])
    with pytest.raises(InvariantError, match="no request has them"):
        fixture.check()


def test_copy_slots_moves_all_layers() -> None:
    cache = KVCache(
        num_layers=2,
        num_blocks=3,
        block_size=4,
        num_kv_heads=2,
        head_dim=3,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    cache.data.copy_(torch.arange(cache.data.numel()).view(cache.data.shape))
    before = cache.slots.clone()  # [2, 2, 12, 2, 3]
    cache.copy_slots(1, 7, 5)
    assert torch.equal(cache.slots[:, :, 7:], before[:, :, 1:6])
    assert torch.equal(cache.slots[:, :, :7], before[:, :, :7])
