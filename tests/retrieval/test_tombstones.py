from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrag.errors import IndexFormatError
from specrag.retrieval.tombstones import Tombstone, Tombstones


@given(st.lists(st.integers(0, 5), max_size=20), st.data())
def test_the_passages_of_what_is_gone_are_gone(counts: list[int], data: st.DataObject) -> None:
    rows, first = [], data.draw(st.integers(0, 10))
    for number, count in enumerate(counts):
        rows.append(Tombstone(number, first, count))
        first += count
    chosen = data.draw(st.lists(st.sampled_from(rows), unique=True)) if rows else []
    half = len(chosen) // 2
    gone = Tombstones().with_more(chosen[:half]).with_more(chosen)
    expected = sorted(
        n for row in chosen for n in range(row.first_passage, row.first_passage + row.num_passages)
    )
    assert gone.passages().tolist() == expected
    assert gone.num_passages == len(expected)
    assert gone.documents == {row.document for row in chosen}
    assert len(gone) == len(chosen)


def test_what_is_gone_survives_the_file(tmp_path: Path) -> None:
    gone = Tombstones().with_more([Tombstone(3, 10, 2), Tombstone(1, 4, 1)])
    gone.save(tmp_path / "deleted.npy")
    loaded = Tombstones.load(tmp_path / "deleted.npy")
    assert loaded.documents == frozenset({1, 3})
    assert loaded.passages().tolist() == [4, 10, 11]


def test_nothing_more_is_the_same_set() -> None:
    gone = Tombstones().with_more([Tombstone(3, 10, 2)])
    assert gone.with_more([Tombstone(3, 10, 2)]) is gone


@pytest.mark.parametrize("content", [None, b"", b"odd", "wrong shape", "wrong type", "objects"])
def test_other_files_are_refused(tmp_path: Path, content: bytes | str | None) -> None:
    path = tmp_path / "deleted.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        kinds = {"wrong shape": np.zeros(3, np.int64), "wrong type": np.zeros((1, 3))}
        np.save(path, kinds.get(content, np.array([None, 1, 2], dtype=object)))
    with pytest.raises(IndexFormatError, match="deletions"):
        Tombstones.load(path)
