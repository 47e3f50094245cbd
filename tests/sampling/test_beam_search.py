"""The algorithm alone, on made-up probabilities. Tests in `engine/` compare it with transformers."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.sampling.beam_params import BeamSearchParams
from minipaged.sampling.beam_search import BeamSearch, Hypothesis, Survivor

EOS = 9


def logs(**probabilities: float) -> list[tuple[int, float]]:
    """Candidates from probabilities by token, written `t3=0.5`; likeliest first."""
    entries = [(int(name[1:]), math.log(p)) for name, p in probabilities.items()]
    return sorted(entries, key=lambda entry: -entry[1])


def search(width: int, max_tokens: int = 10, **options: object) -> BeamSearch:
    params = BeamSearchParams(width, max_tokens, **options)  # pyright: ignore[reportArgumentType]
    return BeamSearch(params, max_tokens, [EOS])


def lines(found: BeamSearch) -> list[tuple[int, ...]]:
    return [beam.token_ids for beam in found.beams]


def endings(found: BeamSearch) -> list[tuple[int, ...]]:
    return [hypothesis.token_ids for hypothesis in found.hypotheses]


def test_the_best_over_all_beams_survive() -> None:
    found = search(2)
    assert found.advance([logs(t1=0.6, t2=0.3, t3=0.1)]) == [Survivor(0, 1), Survivor(0, 2)]
    # 0.6 * 0.3 = 0.18 and 0.3 * 0.9 = 0.27: the second beam overtakes.
    survivors = found.advance([logs(t1=0.3, t2=0.25, t3=0.2), logs(t4=0.9, t5=0.05)])
    assert survivors == [Survivor(1, 4), Survivor(0, 1)]
    assert lines(found) == [(2, 4), (1, 1)]
    assert math.isclose(found.beams[0].cum_logprob, math.log(0.27))


def test_one_beam_can_be_the_parent_of_all() -> None:
    found = search(2)
    found.advance([logs(t1=0.9, t2=0.05)])
    assert found.advance([logs(t3=0.5, t4=0.4), logs(t5=0.9, t6=0.1)]) == [Survivor(0, 3), Survivor(0, 4)]


def test_an_end_of_sequence_ends_a_hypothesis_and_a_spare_extension_takes_its_place() -> None:
    found = search(2)
    assert found.num_candidates == 4
    survivors = found.advance([logs(t9=0.5, t1=0.3, t2=0.15, t3=0.05)])
    assert survivors == [Survivor(0, 1), Survivor(0, 2)]
    assert found.hypotheses == [Hypothesis((EOS,), math.log(0.5), math.log(0.5), "stop")]


def test_an_end_of_sequence_below_the_width_counts_for_nothing() -> None:
    found = search(2)
    found.advance([logs(t1=0.5, t2=0.3, t9=0.15, t3=0.05)])
    assert lines(found) == [(1,), (2,)]
    assert found.hypotheses == []


def test_ignored_it_is_a_token_like_any_other() -> None:
    found = search(2, ignore_eos=True)
    found.advance([logs(t9=0.6, t1=0.3)])
    assert lines(found) == [(EOS,), (1,)]


def test_at_max_tokens_the_best_of_all_end() -> None:
    found = search(2, max_tokens=2)
    found.advance([logs(t1=0.6, t2=0.3, t3=0.1)])
    assert found.advance([logs(t1=0.5, t2=0.4), logs(t9=0.9, t1=0.1)]) == []
    assert found.is_over
    assert endings(found) == [(1, 1), (2, EOS)]
    assert [h.finish_reason for h in found.hypotheses] == ["length", "stop"]


def test_the_search_ends_when_the_best_beam_is_no_better_than_the_worst_hypothesis() -> None:
    found = search(1, length_penalty=0.0)
    # With width 1 a step takes two extensions: one ends, and one is the next beam.
    found.advance([logs(t9=0.5, t1=0.4)])
    assert found.is_over, "0.4 can only become less"
    assert endings(found) == [(EOS,)]


def test_a_length_penalty_keeps_a_worse_beam_alive() -> None:
    found = search(1, length_penalty=1.0, early_stopping="never")
    found.advance([logs(t9=0.5, t1=0.4)])
    assert lines(found) == [(1,)], "at ten tokens log(0.4) / 10 would be better"
    found.advance([logs(t9=0.9, t2=0.1)])
    assert endings(found) == [(1, EOS)]
    assert math.isclose(found.hypotheses[0].score, math.log(0.36) / 2)


def full_set(*, early_stopping: bool = False) -> BeamSearch:
    """Two hypotheses. The second has a low score, and the beams have better ones."""
    found = search(2, early_stopping=early_stopping)
    found.advance([logs(t1=0.9, t9=0.06, t2=0.04)])
    found.advance([logs(t3=0.5, t9=0.4, t4=0.1), logs(t9=0.9, t3=0.1)])
    assert endings(found) == [(1, EOS), (EOS,)]
    return found


def test_early_stopping_ends_with_the_first_full_set() -> None:
    assert full_set(early_stopping=True).is_over
    assert lines(full_set(early_stopping=False)) == [(1, 3), (1, 4)]


def test_a_better_ending_replaces_the_worst() -> None:
    found = full_set()
    found.advance([logs(t9=0.9, t5=0.1), logs(t5=0.9, t9=0.1)])
    assert endings(found) == [(1, 3, EOS), (1, EOS)]
    assert [h.score for h in found.hypotheses] == pytest.approx([math.log(0.405) / 3, math.log(0.36) / 2])
    assert found.is_over, "the best beam, log(0.081) / 3, is no better than either"


def test_several_ends_of_sequence_need_more_candidates() -> None:
    params = BeamSearchParams(3, 5)
    assert BeamSearch(params, 5, []).num_candidates == 6
    assert BeamSearch(params, 5, [7]).num_candidates == 6
    assert BeamSearch(params, 5, [7, 8]).num_candidates == 9
    assert BeamSearch(BeamSearchParams(3, 5, ignore_eos=True), 5, [7, 8]).num_candidates == 6


def test_aborted_the_beams_are_the_hypotheses() -> None:
    found = search(2)
    found.advance([logs(t1=0.6, t2=0.3, t3=0.1)])
    found.abort()
    assert found.is_over
    assert endings(found) == [(1,), (2,)]
    assert {hypothesis.finish_reason for hypothesis in found.hypotheses} == {"abort"}


def test_aborted_before_anything_there_is_one_empty_hypothesis() -> None:
    found = search(2)
    found.abort()
    assert found.hypotheses == [Hypothesis((), 0.0, 0.0, "abort")]


@pytest.mark.parametrize("width", [2, 3])
def test_fewer_tokens_than_beams(width: int) -> None:
    found = search(width, max_tokens=4, ignore_eos=True)
    for _ in range(4):
        found.advance([logs(t0=1.0)] * len(found.beams))
    assert endings(found) == [(0, 0, 0, 0)], "there is no other sequence"


@given(
    seed=st.integers(0, 1000), max_tokens=st.integers(1, 4), length_penalty=st.sampled_from([0.0, 1.0, 2.0])
)
def test_a_search_as_wide_as_the_tree_finds_the_best_sequences(
    seed: int, max_tokens: int, length_penalty: float
) -> None:
    """With a vocabulary of three tokens there are 27 sequences of three tokens. 27 beams follow them all."""

    def candidates(line: tuple[int, ...]) -> list[tuple[int, float]]:
        weights = [1 + hash((seed, *line, token)) % 97 for token in range(3)]
        entries = [(token, math.log(weight / sum(weights))) for token, weight in enumerate(weights)]
        return sorted(entries, key=lambda entry: -entry[1])

    def total(line: tuple[int, ...]) -> float:
        return sum(dict(candidates(line[:i]))[token] for i, token in enumerate(line))

    found = search(27, max_tokens, ignore_eos=True, length_penalty=length_penalty)
    while not found.is_over:
        found.advance([candidates(beam.token_ids) for beam in found.beams])
    every = sorted(map(total, itertools.product(range(3), repeat=max_tokens)), reverse=True)[:27]
    assert [h.cum_logprob for h in found.hypotheses] == pytest.approx(every)
    assert [h.score for h in found.hypotheses] == pytest.approx(
        [score / max_tokens**length_penalty for score in every]
    )
