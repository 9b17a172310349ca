"""Whether citations hold the answer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.evaluation.metrics.citations import citation_precision, citation_recall, holds_answer

PASSAGES = [("1", "The Broncos won 24–10."), ("2", "Denver's Broncos played."), ("3", "Rain.")]


def test_a_text_holds_an_answer_as_whole_tokens() -> None:
    assert holds_answer("The Broncos won.", ["broncos"])
    assert not holds_answer("Bronco", ["broncos"])
    assert not holds_answer("The Broncos won.", [])


@pytest.mark.parametrize(
    ("quotes", "precision", "recall"),
    [
        ([], None, 0.0),
        ([("1", "The Broncos won 24–10.")], 1.0, 0.5),
        ([("1", "won 24–10."), ("3", "Rain.")], 0.0, 0.0),
        ([("1", "Broncos"), ("2", "Broncos"), ("3", "Rain.")], 2 / 3, 1.0),
        ([("1", "Broncos"), ("1", "The Broncos")], 1.0, 0.5),  # one passage counts once
        ([("9", "Broncos")], 1.0, 0.0),  # of no passage that was shown
    ],
)
def test_shares(
    quotes: list[tuple[str, str]], precision: float | None, recall: float | None
) -> None:
    assert citation_precision(quotes, ["Broncos"]) == precision
    assert citation_recall(quotes, PASSAGES, ["Broncos"]) == recall


def test_there_is_nothing_to_measure_without_an_answer() -> None:
    assert citation_precision([("1", "Broncos")], []) is None
    assert citation_recall([("1", "Broncos")], PASSAGES, []) is None
    assert citation_recall([], PASSAGES, ["Panthers"]) is None


_CITED = st.lists(st.tuples(st.sampled_from("123"), st.sampled_from(["x y", "y", "the", ""])))


@settings(deadline=None, max_examples=100)
@given(_CITED, _CITED)
def test_citing_all_passages_whole_recalls_all(
    quotes: list[tuple[str, str]], passages: list[tuple[str, str]]
) -> None:
    whole = citation_recall(passages, passages, ["x"])
    assert whole is None or whole == 1.0
    found = citation_recall(quotes, passages, ["x"])
    assert (found is None) == (whole is None)
    more = citation_recall([*quotes, *passages], passages, ["x"])
    assert more == whole
