"""The report of `specrag advise`: its figures, its sources, and the field's errors it names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specrag.decoding.analysis import best_gamma, break_even_alpha, expected_tokens, speedup
from specrag.decoding.budget import PassCosts
from specrag.errors import ConfigError
from specrag.evaluation.advise import USUAL_ALPHAS, advise_report, published
from specrag.evaluation.cost_table import CostTable
from specrag.evaluation.measured_acceptance import MeasuredAcceptance

STEP = PassCosts((1, 2, 4, 8, 16, 32), (1.0, 1.75, 1.94, 1.94, 1.98, 2.27))
TABLE = CostTable(STEP, "as typed")
MEASURED = MeasuredAcceptance(
    "suffix, rag", (0.8, 0.7, 0.6), 0.72, "num_drafts", 300, 600, 2.2, 1.6, 3.0, 30.0, 4.0
)


def report(**options: Any) -> dict[str, Any]:
    return advise_report(options.pop("table", TABLE), **options)


def row(found: dict[str, Any], label: str) -> dict[str, Any]:
    return next(row for row in found["rows"] if row["label"] == label)


def test_the_tables_are_the_formula() -> None:
    found = report(alpha=0.65, epsilon=0.05, batch_size=2, max_gamma=8)
    assert found["gammas"] == [1, 2, 4, 8]
    alphas = [item["alpha"] for item in found["rows"]]
    assert alphas == sorted({*USUAL_ALPHAS, 0.65})
    for item in found["rows"]:
        alpha = item["alpha"]
        tokens = [expected_tokens(alpha, gamma) for gamma in (1, 2, 4, 8)]
        assert item["expected_tokens"] == pytest.approx(tokens, abs=1e-6)
        curve = [speedup(alpha, gamma, 0.05, STEP, batch_size=2) for gamma in range(9)]
        assert item["curve"] == pytest.approx(curve, abs=1e-6)
        assert item["speedup"] == [item["curve"][gamma] for gamma in (1, 2, 4, 8)]
        assert item["best_gamma"] == best_gamma(alpha, 0.05, STEP, 8, batch_size=2)
        assert item["best_speedup"] == pytest.approx(max(curve), abs=1e-6)
        assert item["pays"] == (item["best_gamma"] > 0)
    assert found["break_even_alpha"] == pytest.approx(
        break_even_alpha(0.05, STEP, 8, batch_size=2), abs=1e-6
    )


def test_a_report_is_plain_data() -> None:
    found = report(measured=[MEASURED])
    assert json.loads(json.dumps(found)) == found


def test_alpha_is_given_or_measured_or_assumed() -> None:
    sources = [
        report(alpha=0.6, measured=[MEASURED]),
        report(measured=[MEASURED]),
        report(),
    ]
    found = [(r["assumptions"]["alpha"], r["assumptions"]["alpha_source"]) for r in sources]
    assert found == [(0.6, "given"), (0.72, "measured"), (0.7, "assumed")]
    # Only an acceptance of one's own replaces the published one of a use.
    alphas = [r["uses"][0]["alpha"] for r in sources]
    assert alphas == [[0.6, 0.6], [0.72, 0.72], [0.85, 0.92]]


def test_an_alpha_that_is_usual_is_marked_and_not_doubled() -> None:
    labels = [item["label"] for item in report(alpha=0.8)["rows"]]
    assert labels == ["0.50", "0.60", "0.70", "0.80 (yours)", "0.85", "0.90"]


def test_a_measured_row_uses_its_depths_and_its_own_cost_of_drafting() -> None:
    item = row(report(measured=[MEASURED]), "suffix, rag")
    # Passes of 4 nodes took 30 ms, so 3 ms a token are 3 / (30 / 1.94) of a plain pass.
    assert item["epsilon"] == pytest.approx(3 * 1.94 / 30)
    assert item["expected_tokens"][2] == pytest.approx(1 + 0.8 + 0.56 + 0.336 + 0.2016)
    assert item["alpha"] == 0.72
    assert item["measured"]["alpha_by_depth"] == [0.8, 0.7, 0.6]
    assert item["measured"]["speedup"] == 1.6
    assert row(report(epsilon=0.0, measured=[MEASURED]), "suffix, rag")["epsilon"] == 0


def test_passes_without_a_draft_are_plain_ones() -> None:
    item = row(report(epsilon=0.0, measured=[MEASURED]), "suffix, rag")
    gamma = item["best_gamma"]
    tokens = 0.5 * expected_tokens(MEASURED.by_depth, gamma) + 0.5
    spent = 0.5 * STEP.of(1 + gamma) + 0.5
    assert item["measured"]["coverage"] == 0.5
    assert item["measured"]["speedup_over_all_passes"] == pytest.approx(tokens / spent, abs=1e-6)
    assert item["measured"]["speedup_over_all_passes"] < item["best_speedup"]


def test_batches_share_a_pass() -> None:
    found = report(alpha=0.7, batch_size=3)
    assert [item["batch_size"] for item in found["batches"]] == [1, 2, 3, 4, 8, 16, 32]
    for item in found["batches"]:
        best = best_gamma(0.7, 0.0, STEP, 16, batch_size=item["batch_size"])
        assert item["best_gamma"] == best


def test_it_says_where_figures_are_drawn_out() -> None:
    assert report(max_gamma=16)["costs"]["extrapolated_beyond"] is None
    assert report(max_gamma=16, batch_size=2)["costs"]["extrapolated_beyond"] == 32
    assert report(table=CostTable(None, "flat"))["costs"]["extrapolated_beyond"] is None


def test_where_nothing_pays_it_says_so() -> None:
    found = report(table=CostTable(PassCosts((1, 2), (1.0, 2.0)), "as typed"))
    assert (found["pays"], found["break_even_alpha"]) == (False, None)
    assert {item["best_gamma"] for item in found["rows"]} == {0}


def test_the_published_table_stands_beside_the_right_one() -> None:
    formula = {item["alpha"]: item["formula"] for item in published()}
    assert formula == {
        0.5: [1.94, 2.00, 2.00],
        0.7: [2.77, 3.20, 3.33],
        0.85: [3.71, 5.12, 6.25],
        0.9: [4.10, 6.13, 8.33],
    }
    printed = {item["alpha"]: item["published"] for item in published()}
    for alpha in (0.85, 0.9):
        pairs = zip(printed[alpha], formula[alpha], strict=True)
        assert all(published < right for published, right in pairs)
    assert printed[0.7][1] > formula[0.7][1]
    assert printed[0.7][2] > formula[0.7][2]


def test_the_notes_name_the_errors_of_the_field_with_the_right_figures() -> None:
    notes = " ".join(report()["notes"])
    assert "0.85: 3.44/4.62/5.43 for 3.71/5.12/6.25" in notes
    assert "0.90: 3.78/5.65/7.48 for 4.10/6.13/8.33" in notes
    assert f"{expected_tokens(0.7, 16) / 1.1:.2f}x, but" in notes
    assert f"1.6 passes: {speedup(0.7, 16, 0.1):.2f}x" in notes
    assert "flat" not in notes
    assert "flat costs" in " ".join(report(table=CostTable(None, "flat"))["notes"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 1.2}, "alpha must be between 0 and 1"),
        ({"epsilon": -1.0}, "epsilon must be"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"max_gamma": 0}, "max_gamma must be at least 1"),
        ({"uses": ["coding"]}, "unknown use 'coding'"),
    ],
)
def test_values_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        report(**options)
