"""The groups of a step's tokens: each token is in one group, and a group shares its first blocks."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.cpu.attention.query_groups import MOST_DECODES, MOST_TOKENS, QueryGroups, group_queries

Table = list[int]


def grouped(tables: list[Table], query_lens: list[int], seq_lens: list[int]) -> QueryGroups:
    width = max(map(len, tables), default=0)
    padded = np.array([table + [0] * (width - len(table)) for table in tables], dtype=np.int32)
    starts = [0, *np.cumsum(query_lens).tolist()]
    return group_queries(padded.reshape(len(tables), width), starts, seq_lens, query_lens.count(1))


def members_of(groups: QueryGroups) -> list[list[int]]:
    starts = groups.starts.tolist()
    return [groups.members.tolist()[a:b] for a, b in itertools.pairwise(starts)]


@settings(max_examples=100, deadline=None)
@given(
    tables=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), max_size=20),
    chunks=st.lists(st.integers(2, 70), max_size=4),
)
def test_every_token_is_in_one_group_of_those_with_a_common_beginning(
    tables: list[Table], chunks: list[int]
) -> None:
    query_lens = [1] * len(tables) + chunks
    seq_lens = [len(table) * 16 for table in tables] + [chunk + 5 for chunk in chunks]
    tables = tables + [list(range(1, 10))] * len(chunks)
    groups = grouped(tables, query_lens, seq_lens)
    assert sorted(groups.members.tolist()) == list(range(sum(query_lens)))
    expected = [s for s, query_len in enumerate(query_lens) for _ in range(query_len)]
    assert groups.sequences.tolist() == expected
    ends = [
        seq_len - query_len + i + 1
        for query_len, seq_len in zip(query_lens, seq_lens, strict=True)
        for i in range(query_len)
    ]
    assert groups.lengths.tolist() == ends
    assert int(groups.lengths.sum()) == sum(ends)
    for members, shared in zip(members_of(groups), groups.shared.tolist(), strict=True):
        sequences = {expected[member] for member in members}
        if len(sequences) == 1:
            assert len(members) <= MOST_TOKENS
            continue
        assert len(members) <= MOST_DECODES
        assert all(query_lens[s] == 1 for s in sequences)
        width = max(map(len, tables))
        beginnings = {tuple((tables[s] + [0] * width)[:shared]) for s in sequences}
        assert shared >= 1
        assert len(beginnings) == 1


def test_neighbours_share_as_much_as_they_can() -> None:
    tables = [[1, 2, 3], [1, 5, 6], [1, 2, 4], [1, 5, 7]] * 4
    groups = grouped(tables, [1] * 16, [48] * 16)
    assert groups.shared.tolist() == [2, 2]


def test_nothing() -> None:
    groups = grouped([], [], [])
    assert members_of(groups) == []
    assert len(groups.lengths) == 0
