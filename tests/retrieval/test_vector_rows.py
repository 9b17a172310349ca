from __future__ import annotations

import gc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.retrieval.vector_rows import Selection, VectorRows

IDS = st.lists(st.integers(0, 2**60), unique=True, max_size=30)


@given(ids=IDS, asked=st.lists(st.integers(-1, 2**60), max_size=20))
@settings(deadline=None, max_examples=100)
def test_rows_are_where_the_ids_are(ids: list[int], asked: list[int]) -> None:
    wanted = asked + ids[::2]
    rows = VectorRows(np.array(ids, dtype=np.int64)).rows_of(np.array(wanted, dtype=np.int64))
    assert rows.tolist() == [ids.index(one) if one in ids else -1 for one in wanted]


@given(ids=IDS, data=st.data())
@settings(deadline=None, max_examples=100)
def test_a_selection_is_what_is_allowed_without_what_is_excluded(
    ids: list[int], data: st.DataObject
) -> None:
    some = st.none() | st.lists(st.sampled_from([*ids, -1, 2**61]), max_size=20)
    allowed, excluded = data.draw(some), data.draw(some)
    selection = Selection(
        *(None if part is None else np.array(part, dtype=np.int64) for part in (allowed, excluded))
    )
    selected = selection.rows_in(VectorRows(np.array(ids, dtype=np.int64)))
    expected = [
        row
        for row, one in enumerate(ids)
        if (allowed is None or one in allowed) and one not in (excluded or ())
    ]
    assert selected.rows.tolist() == expected
    assert len(selected) == len(expected)
    assert [row for row in range(len(ids)) if selected.selector.is_member(row)] == expected


def test_a_selection_is_prepared_once_an_index_and_forgotten_with_it() -> None:
    selection = Selection(excluded=np.array([3], dtype=np.int64))
    rows, others = (VectorRows(np.arange(num, dtype=np.int64)) for num in (5, 4))
    first = selection.rows_in(rows)
    assert selection.rows_in(others) is not first
    assert selection.rows_in(rows) is first
    del rows
    gc.collect()
    assert len(selection._prepared) == 1
