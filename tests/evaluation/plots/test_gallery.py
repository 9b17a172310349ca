"""Each picture is drawn from its layout, absent without it, and never a reason to fail."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.evaluation.plots.gallery import PICTURES, caption, draw
from specrag.evaluation.reports.report import KINDS
from tests.evaluation.plots.drawn import letters
from tests.evaluation.plots.layouts import LAYOUTS, qa, retrieval, speed, tuning, without

pytest.importorskip("matplotlib")

# Picture: a label of its axes, and names that must stand in it.
SHOWN = {
    "accuracy_retrieval": ("questions looked up (%)", "gate", "oracle", "random", "mode auto"),
    "accuracy_by_mode": ("questions (%)", "exact match", "contains", "mode always (40 questions)"),
    "grounding_by_mode": ("retrieval recall", "citation precision", "mode auto (25 questions)"),
    "reliability": ("closed book right (%)", "questions", "perfect"),
    "stages": ("mean milliseconds per question", "prefill", "decode", "mode never"),
    "latency_by_mode": ("milliseconds per question", "P50", "P90", "P99", "mode never"),
    "speedup_by_drafter": ("times plain decoding", "suffix", "llama.cpp", "coding", "all prompts"),
    "speed_by_drafter": ("tokens per second", "plain", "suffix"),
    "acceptance_by_task": ("code", "usual: 85 to 92 %", "maths", "suffix"),
    "acceptance_by_depth": ("depth in the draft (tokens)", "suffix"),
    "latency_per_token": ("milliseconds per token", "plain", "llama.cpp", "P99"),
    "gamma_sweep": ("drafted tokens a pass", "suffix: best 1.80 at 8", "plain"),
    "tree_sweep": (
        "Chains and trees, times plain decoding",
        "suffix",
        "selector",
        "8 tokens",
        "1.30",
    ),
    "pass_costs": ("tokens in a pass, N", "T(N) / T(1)", "measured", "N passes of one token"),
    "recall_by_depth": (
        "documents looked at, k (logarithmic scale)",
        "dense",
        "bm25",
        "hybrid",
        "5",
        "100",
    ),
    "ranking_by_retriever": ("mean over questions (%)", "nDCG@10", "MRR@10", "bm25", "60.0"),
    "lookup_by_retriever": ("milliseconds per lookup", "P50", "P99", "hybrid"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_report_has_all_pictures_of_its_kind(kind: str) -> None:
    drawn = draw(kind, LAYOUTS[kind]())
    assert list(drawn) == [name for name, known in PICTURES.items() if kind in known.kinds]
    for name, figure in drawn.items():
        texts = letters(figure)
        assert [wanted for wanted in SHOWN[name] if wanted not in texts] == []


def test_every_picture_is_checked() -> None:
    assert SHOWN.keys() == PICTURES.keys()
    assert all(caption(name).endswith(".") for name in PICTURES)
    assert caption("something_else") == "something else"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "figures", [{}, {"modes": {}, "results": [], "drafters": [], "gate": None}]
)
def test_a_report_without_figures_has_no_pictures(kind: str, figures: dict[str, Any]) -> None:
    assert draw(kind, figures) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_figures_that_are_all_unknown_give_no_pictures(kind: str) -> None:
    assert draw(kind, without(LAYOUTS[kind](), lambda: True)) == {}


def test_an_unknown_kind_has_no_pictures() -> None:
    assert draw("other", qa()) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_lacks_only_what_its_report_lacks(kind: str) -> None:
    full = LAYOUTS[kind]()
    for key in full:
        rest = draw(kind, {name: value for name, value in full.items() if name != key})
        for name, known in PICTURES.items():
            if kind in known.kinds and key not in known.needs:
                assert name in rest


@settings(deadline=None, max_examples=7)
@given(st.sampled_from(KINDS), st.integers(0, 2**32), st.floats(0.05, 0.95))
def test_unknown_values_break_no_picture(kind: str, seed: int, share: float) -> None:
    chance = random.Random(seed)
    figures = without(LAYOUTS[kind](), lambda: chance.random() < share)
    for figure in draw(kind, figures).values():
        assert letters(figure)


def test_a_single_point_can_be_drawn() -> None:
    one = speed(("none", "suffix"))
    one["results"] = [row for row in one["results"] if row["category"] == "all"]
    one["tasks"] = one["tasks"][:1]
    tuned = tuning(("suffix",))
    tuned["sweep"] = tuned["sweep"][:1]
    asked = qa()
    asked["gate"]["reliability"] = asked["gate"]["reliability"][:1]
    asked["gate"]["curves"] = {"gate": [[0.0, 0.2]]}
    found = retrieval(("dense",))
    found["retrievers"]["dense"] = {
        name: found["retrievers"]["dense"][name] for name in ("mrr@10", "recall@5")
    }
    reports = (("speed", one), ("tuning", tuned), ("qa", asked), ("retrieval", found))
    for kind, figures in reports:
        drawn = draw(kind, figures)
        assert "tree_sweep" not in drawn  # one setting is no sweep
        assert "recall_by_depth" not in drawn  # one depth is no curve
        assert all(letters(figure) for figure in drawn.values())


def test_hostile_names_are_only_letters() -> None:
    hostile = ("none", "$\\frac{a</text><script>", "_&amp;\n\x00" + "y" * 99)
    attacks = {
        "speed": speed(hostile),
        "tuning": tuning(hostile[1:]),
        "retrieval": retrieval(hostile[1:]),
    }
    for kind, figures in attacks.items():
        for figure in draw(kind, figures).values():
            assert letters(figure)
