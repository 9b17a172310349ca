"""What every reranker must keep to; the contract is in ``specrag/retrieval/rerank.py``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from specrag.errors import InputError
from specrag.retrieval.document import Passage, ScoredPassage
from specrag.retrieval.rerank import CrossEncoderReranker, Reranker, WordOverlapReranker
from tests.retrieval.tiny_cross_encoder import tiny_cross_encoder

QUERY = "How does the gate decide?"
TEXTS = [
    "The gate decides by the entropy of the draft.",
    "",
    "草稿模型先猜词。",
    "Bake the bread for forty minutes.",
    "gate decide " * 300,
    "The gate decides by the entropy of the draft.",
]
Make = Callable[[], Reranker]


def found(texts: list[str], heading: str | None = None) -> list[ScoredPassage]:
    return [
        ScoredPassage(Passage(number, "a", text, 0, len(text), heading=heading), 1.0 - number)
        for number, text in enumerate(texts)
    ]


@pytest.fixture(scope="module", params=["word-overlap", "cross-encoder"])
def make(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Make:
    if request.param == "word-overlap":
        return WordOverlapReranker
    folder: Path = tiny_cross_encoder(tmp_path_factory.mktemp("cross-encoder"))
    return lambda: CrossEncoderReranker(folder, batch_size=2)


@pytest.fixture(scope="module")
def reranker(make: Make) -> Reranker:
    return make()


def test_the_best_come_first_with_scores_of_their_own(reranker: Reranker) -> None:
    given = found(TEXTS)
    ranked = reranker.rerank(QUERY, given, len(TEXTS))
    scores = [one.score for one in ranked]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) > 1
    assert all(type(score) is float for score in scores)
    assert sorted(one.passage.id for one in ranked) == list(range(len(TEXTS)))
    assert {one.passage.id: one.passage for one in ranked} == {
        one.passage.id: one.passage for one in given
    }


def test_equal_scores_stay_in_the_order_given(reranker: Reranker) -> None:
    given = found([TEXTS[0]] * 5)
    assert [one.passage.id for one in reranker.rerank(QUERY, given, 5)] == [0, 1, 2, 3, 4]
    backwards = reranker.rerank(QUERY, given[::-1], 5)
    assert [one.passage.id for one in backwards] == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("k", [1, 3, 100])
def test_at_most_k_are_returned_and_they_are_the_best(reranker: Reranker, k: int) -> None:
    everything = reranker.rerank(QUERY, found(TEXTS), len(TEXTS))
    some = reranker.rerank(QUERY, found(TEXTS), k)
    assert [one.passage.id for one in some] == [one.passage.id for one in everything[:k]]


def test_a_score_depends_on_query_and_passage_alone(reranker: Reranker) -> None:
    passages = [one.passage for one in found(TEXTS)]
    together = reranker.score(QUERY, passages)
    alone = [reranker.score(QUERY, [passage])[0] for passage in passages]
    assert together == pytest.approx(alone, abs=1e-5)
    assert reranker.score("bread", passages) != pytest.approx(together, abs=1e-5)


def test_the_heading_of_a_passage_counts(reranker: Reranker) -> None:
    plain, headed = found(["It is so."]), found(["It is so."], "Gate > How to decide")
    scores = [reranker.rerank(QUERY, given, 1)[0].score for given in (plain, headed)]
    assert scores[0] != pytest.approx(scores[1], abs=1e-6)


def test_nothing_is_left_of_nothing(reranker: Reranker) -> None:
    assert reranker.rerank(QUERY, [], 3) == []


def test_an_unusable_k_is_refused(reranker: Reranker) -> None:
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        reranker.rerank(QUERY, found(TEXTS), 0)


def test_equal_rerankers_have_equal_fingerprints(reranker: Reranker, make: Make) -> None:
    assert make().fingerprint == reranker.fingerprint
    assert reranker.fingerprint
    assert reranker.name


def test_several_threads_may_rerank(reranker: Reranker) -> None:
    reranker.warm_up()
    expected = reranker.rerank(QUERY, found(TEXTS), 3)
    results: list[list[ScoredPassage]] = []

    def run() -> None:
        results.append(reranker.rerank(QUERY, found(TEXTS), 3))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results:
        assert [one.passage for one in result] == [one.passage for one in expected]
