"""What stands where in each picture."""

from __future__ import annotations

from typing import Any

import pytest

from specrag.evaluation.plots.acceptance import acceptance_by_depth, acceptance_by_task
from specrag.evaluation.plots.answers import accuracy_by_mode, grounding_by_mode
from specrag.evaluation.plots.costs import pass_costs
from specrag.evaluation.plots.gate import accuracy_retrieval, reliability
from specrag.evaluation.plots.latency import stages
from specrag.evaluation.plots.retrieval import ranking_by_retriever, recall_by_depth
from specrag.evaluation.plots.sweeps import gamma_sweep, tree_sweep
from specrag.evaluation.plots.throughput import speed_by_drafter, speedup_by_drafter
from tests.evaluation.plots.drawn import labels, letters
from tests.evaluation.plots.layouts import qa, retrieval, speed, tuning

pytest.importorskip("matplotlib")


def _line(figure: Any, label: str) -> list[list[float]]:
    lines = [line for axes in figure.axes for line in axes.lines if line.get_label() == label]
    assert len(lines) == 1, f"{len(lines)} lines are called {label!r}"
    return [[float(value) for value in side] for side in lines[0].get_data()]


def test_curves_and_points_of_the_gate() -> None:
    figure = accuracy_retrieval(qa())
    assert _line(figure, "gate") == [[0, 50, 100], [20, 40, 50]]
    gate = next(line for line in figure.axes[0].lines if line.get_label() == "gate")
    assert gate.get_linewidth() == max(line.get_linewidth() for line in figure.axes[0].lines)
    assert labels(figure)[:3] == ["gate", "oracle", "random"]
    assert labels(figure)[-3:] == ["mode never", "mode always", "mode auto"]


def test_reliability_is_in_order_with_its_counts() -> None:
    figure = reliability(qa())
    assert _line(figure, "measured, calibration error 10.0 %") == [[30, 80], [20, 70]]
    bars = figure.axes[1].collections[0].get_segments()
    assert [segment[1].tolist() for segment in bars] == [[30, 10], [80, 30]]


def test_bars_of_modes_keep_their_colours() -> None:
    answers, grounding = accuracy_by_mode(qa()), grounding_by_mode(qa())
    colours = []
    for figure in (answers, grounding):
        bars = {each.get_label(): each[0] for each in figure.axes[0].containers if len(each) < 9
                and hasattr(each[0], "get_hatch")}  # fmt: skip
        colours.append({name.split(" (")[0]: bar.get_facecolor() for name, bar in bars.items()})
    assert set(colours[1]) == {"mode always", "mode auto"}  # never has no passages
    assert all(colours[0][mode] == colour for mode, colour in colours[1].items())
    assert letters(answers).count("20.0") == 3


def test_stages_add_up() -> None:
    assert letters(stages(qa())).count("378") == 3  # 1.2 * (5 + 10 + 100 + 200)


def test_plain_decoding_is_a_line_among_speedups_and_an_arm_among_speeds() -> None:
    figures = speed()
    assert labels(speedup_by_drafter(figures)) == ["plain", "suffix", "llama.cpp"]
    assert labels(speed_by_drafter(figures)) == ["plain", "suffix", "llama.cpp"]
    assert speedup_by_drafter(speed(("none", "none"))) is None


def test_one_category_is_told_once_and_with_figures() -> None:
    figures = speed()
    figures["results"] = [row for row in figures["results"] if row["category"] != "qa"]
    texts = letters(speed_by_drafter(figures))
    assert {"40.0", "60.0", "80.0"} <= set(texts)
    assert "all prompts" not in texts


def test_tuning_shows_plain_decoding_beside_its_drafters() -> None:
    assert {"plain", "suffix", "selector", "40.0"} <= set(letters(speed_by_drafter(tuning())))


def test_acceptance_by_depth_starts_at_depth_one() -> None:
    figure = acceptance_by_depth(speed())
    assert _line(figure, "suffix") == [[1, 2, 3], [75, 50, 25]]
    assert labels(figure) == ["suffix"]


def test_usual_ranges_lie_behind_the_tasks_and_few_drafts_are_hollow() -> None:
    figure = acceptance_by_task(speed())
    bands = [(bar.get_x(), bar.get_width()) for bar in figure.axes[0].patches]
    assert bands == [pytest.approx((85, 7)), pytest.approx((60, 10))]
    assert any("hollow" in text for text in letters(figure))
    marks = [line for line in figure.axes[0].lines if len(line.get_xdata())]
    assert [mark.get_markerfacecolor() == "white" for mark in marks] == [False, True]
    figures = speed()
    figures["tasks"][1]["num_drafts"] = 300
    assert not any("hollow" in text for text in letters(acceptance_by_task(figures)))


def test_costs_lie_beside_the_diagonal() -> None:
    figure = pass_costs(tuning())
    assert _line(figure, "measured") == [[1, 2, 4, 8], [1.0, 1.1, 1.2, 1.6]]
    sizes, values = _line(figure, "N passes of one token")
    assert sizes == values
    assert len(sizes) > 50  # a polygon would be bent on this scale
    assert "milliseconds" in letters(figure)
    assert "milliseconds" not in letters(pass_costs(speed()))


def test_the_best_length_is_named_and_trees_stay_out_of_the_chains() -> None:
    figure = gamma_sweep(tuning())
    assert labels(figure) == ["plain", "suffix: best 1.80 at 8", "selector: best 1.60 at 8"]
    first = figure.axes[0].containers[0].lines[0]
    assert first.get_xdata().tolist() == [1, 4, 8]


def test_trees_are_a_map_of_what_differs_in_branching_alone() -> None:
    figure = tree_sweep(tuning())
    cells = figure.axes[0].collections[0].get_array()
    assert cells.tolist() == [pytest.approx([1.8, 1.3]), pytest.approx([1.6, 1.3])]
    assert {"1", "4", "fixed", "8 tokens"} <= set(letters(figure))
    figures = tuning()
    figures["sweep"] = [row for row in figures["sweep"] if row["branching"] == 1]
    assert tree_sweep(figures) is None


def test_recall_is_in_order_of_depth_and_a_retriever_keeps_its_colour() -> None:
    figures = retrieval()
    figures["retrievers"]["dense"] = dict(reversed(figures["retrievers"]["dense"].items()))
    del figures["retrievers"]["bm25"]["recall@5"]
    curves = {
        each.get_label(): each.lines[0] for each in recall_by_depth(figures).axes[0].containers
    }
    assert curves["dense"].get_ydata().tolist() == pytest.approx([50, 70, 85])
    assert curves["dense"].get_xdata().tolist() == pytest.approx([0.97, 4.85, 97])
    assert curves["bm25"].get_ydata().tolist() == pytest.approx([52, 87])
    figures["retrievers"]["dense"] = {}
    shown = recall_by_depth(figures)
    assert labels(shown) == ["bm25", "hybrid"]
    again = {each.get_label(): each.lines[0] for each in shown.axes[0].containers}
    assert again["hybrid"].get_color() == curves["hybrid"].get_color()
    bars = {each.get_label(): each for each in ranking_by_retriever(figures).axes[0].containers}
    assert bars["hybrid"][0].get_facecolor()[:3] != bars["bm25"][0].get_facecolor()[:3]
