"""Rankings of documents from passages, and their scores against a slow reading of trec_eval."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.evaluation.datasets.item import EvalItem
from specrag.evaluation.metrics.passages import Gain
from specrag.evaluation.retrieval.records import ranked, record_of, scores_of
from specrag.evaluation.retrieval.settings import RetrievalSettings
from tests.evaluation.retrieval.found import Told
from tests.oracles import trec

NAMES = [f"d{number}" for number in range(16)]
PASSAGES = st.lists(st.sampled_from(NAMES), max_size=60)
GRADES = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 4), min_size=1)


@settings(deadline=None, max_examples=200)
@given(PASSAGES, GRADES, st.sets(st.integers(1, 20), min_size=1), st.booleans())
def test_all_scores_are_those_of_the_definitions(
    passages: list[str], grades: dict[str, int], cuts: set[int], exponential: bool
) -> None:
    gain: Gain = "exponential" if exponential else "linear"
    chosen = RetrievalSettings(tuple(sorted(cuts)), gain)
    item = EvalItem("1", "q", documents=tuple(grades), grades=grades)
    told = Told({"q": passages})
    told.warm_up()
    ranking = trec.first_places(passages)[: chosen.depth]
    found, _ = ranked(told, "q", chosen.depth)
    assert found == ranking
    expected: dict[str, float | Fraction] = {
        "ndcg@10": trec.ndcg_at(ranking, grades, 10, exponential),
        "mrr@10": trec.reciprocal_rank_at(ranking, grades, 10),
    }
    for k in cuts:
        expected[f"recall@{k}"] = trec.recall_at(ranking, grades, k)
        expected[f"precision@{k}"] = trec.precision_at(ranking, grades, k)
        expected[f"success@{k}"] = trec.success_at(ranking, grades, k)
    scores = scores_of(found, item, chosen, True)
    assert scores == pytest.approx({name: float(value) for name, value in expected.items()})
    fewer = scores_of(found, item, chosen, False)
    assert fewer == {name: scores[name] for name in fewer}
    assert not [name for name in fewer if name.startswith(("precision", "success"))]


def test_passages_of_one_document_cost_no_other_its_place() -> None:
    passages = ["a"] * 12 + ["b"] * 12 + ["c"]
    told = Told({"q": passages})
    told.warm_up()
    assert ranked(told, "q", 10)[0] == ["a", "b", "c"]
    assert [k for _, k in told.asked] == [10, 20, 40]  # 25 of 40: there are no more


def test_what_a_longer_lookup_brings_stands_behind() -> None:
    class Moody(Told):
        """Ranks by how much is asked for, as fusion and reranking may."""

        def retrieve(self, query: str, k: int, where: object = None) -> list:  # type: ignore[type-arg]
            self.rankings = {query: ["a", "a", "b"] if k == 3 else ["c", "b", "a", "a", "a", "b"]}
            return super().retrieve(query, k)

    moody = Moody({})
    moody.warm_up()
    assert ranked(moody, "q", 3)[0] == ["a", "b", "c"]


def test_one_long_document_does_not_make_lookups_without_end() -> None:
    told = Told({"q": ["a"] * 10_000})
    told.warm_up()
    assert ranked(told, "q", 10)[0] == ["a"]
    assert max(k for _, k in told.asked) == 160


def test_a_record_tells_what_was_found() -> None:
    told = Told({"q": ["b", "a", "b"]})
    told.warm_up()
    item = EvalItem("7", "q", category="x", documents=("a",))
    record = record_of("dense", told, item, RetrievalSettings((1, 2)), False)
    assert record["latency_ms"]["lookup_ms"] > 0
    del record["latency_ms"]
    assert record == {
        "mode": "dense",
        "id": "7",
        "category": "x",
        "documents": ["b", "a"],
        "scores": {
            "ndcg@10": pytest.approx(0.6309297535714574),
            "mrr@10": 0.5,
            "recall@1": 0.0,
            "recall@2": 1.0,
        },
    }
