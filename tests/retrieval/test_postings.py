from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.retrieval.postings import Postings, PostingsWriter, pack, unpack


@given(st.dictionaries(st.integers(0, 2**31), st.integers(1, 2**31), min_size=1, max_size=20))
@settings(deadline=None, max_examples=200)
def test_what_was_packed_comes_back(counts: dict[int, int]) -> None:
    places = np.array(sorted(counts), dtype=np.int64)
    found = unpack(pack(Postings(places, np.array([counts[int(place)] for place in places]))))
    assert dict(zip(found.places.tolist(), found.counts.tolist(), strict=True)) == counts
    assert found.places.tolist() == sorted(counts)


@pytest.mark.parametrize(
    ("places", "counts", "size"),
    [([0, 255, 510], [1, 2, 3], 8), ([300, 301], [1, 1], 8), ([0, 1 << 16], [1, 256], 14)],
)
def test_small_numbers_take_few_bytes(places: list[int], counts: list[int], size: int) -> None:
    assert len(pack(Postings(np.array(places), np.array(counts)))) == size


@pytest.mark.parametrize("data", [b"", b"\1", b"\3\1xx", b"\1\0xx", b"\1\2xx"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="packed postings"):
        unpack(data)


_TERMS = st.sampled_from(["a", "b", "ab", "é", "草", "z.z"])


@given(
    st.lists(st.tuples(st.dictionaries(_TERMS, st.integers(1, 300)), st.sets(_TERMS)), max_size=20),
    st.sampled_from([0, 500, 2000, 1 << 20]),
)
@settings(deadline=None, max_examples=100)
def test_a_writer_gives_back_what_it_was_given_whatever_memory_it_has(
    passages: list[tuple[dict[str, int], set[str]]], held_bytes: int
) -> None:
    with PostingsWriter(held_bytes) as writer:
        for place, (counts, content) in enumerate(passages):
            writer.add(place, counts, content)
        records = list(writer.finish())
    terms = [record.term for record in records]
    assert terms == sorted({term for passage in passages for part in passage for term in part})
    for term, num_holding, (places, found) in records:
        holding = {place: held[term] for place, (held, _) in enumerate(passages) if term in held}
        assert dict(zip(places.tolist(), found.tolist(), strict=True)) == holding
        assert places.tolist() == sorted(holding)
        assert num_holding == sum(term in content for _, content in passages)


def test_little_memory_makes_many_runs() -> None:
    with PostingsWriter(1000) as writer:
        for place in range(100):
            writer.add(place, Counter(f"t{place % 7} t{place % 5} t{place}".split()), set())
        assert len(writer._ends) > 5
        records = {record.term: record.postings.places.tolist() for record in writer.finish()}
    assert records["t6"] == [place for place in range(100) if place == 6 or place % 7 == 6]
