from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specrag.retrieval.layout import SegmentRecord
from specrag.retrieval.merging import MERGE_FACTOR, segments_to_compact, segments_to_merge

MOST = 10_000


def record(number: int, passages: int, gone: int = 0) -> SegmentRecord:
    return SegmentRecord(f"seg-{number:06d}", passages, passages, gone, gone, "", {})


def test_segments_of_one_size_are_merged_when_there_are_many() -> None:
    few = [record(n, 1) for n in range(MERGE_FACTOR - 1)]
    large = record(99, 5000)
    assert segments_to_merge([large, *few], MOST) == []
    many = [*few, record(8, 1)]
    assert segments_to_merge([large, *many], MOST) == [many]


def test_a_worn_segment_is_written_anew() -> None:
    worn, sound = record(1, 100, 26), record(2, 100, 25)
    assert segments_to_merge([worn, sound], MOST) == [[worn]]


def test_compacting_leaves_out_what_is_gone() -> None:
    assert segments_to_compact([record(1, 10)], MOST) == []
    one = record(1, 10, 1)
    assert segments_to_compact([one], MOST) == [[one]]
    two = [record(1, 10), record(2, 10)]
    assert segments_to_compact(two, MOST) == [two]


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 200)), max_size=40))
def test_no_group_holds_more_than_fits(sizes: list[tuple[int, int]]) -> None:
    records = [record(n, size, min(size, gone)) for n, (size, gone) in enumerate(sizes)]
    for choose in (segments_to_merge, segments_to_compact):
        groups = choose(records, 200)
        flat = [one.name for group in groups for one in group]
        assert len(flat) == len(set(flat))
        for group in groups:
            assert sum(one.num_live_passages for one in group) <= 200


@given(st.lists(st.integers(1, 3), min_size=1, max_size=60))
def test_the_number_of_segments_grows_slowly(additions: list[int]) -> None:
    records: list[SegmentRecord] = []
    for number, size in enumerate(additions):
        records.append(record(number, size))
        for group in segments_to_merge(records, MOST):
            total = sum(one.num_passages for one in group)
            records = [one for one in records if one not in group]
            records.append(record(1000 + number, total))
    assert len(records) <= 2 * MERGE_FACTOR + MERGE_FACTOR
