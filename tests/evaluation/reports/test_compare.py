"""Two reports held against each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specrag.errors import ConfigError, InputError
from specrag.evaluation.metrics.intervals import paired_difference
from specrag.evaluation.reports.compare import compare, render_comparison
from specrag.evaluation.reports.report import Kind, Report

Scores = Mapping[str, float | None]


def report(folder: Path, kind: Kind, configuration: dict[str, Any], figures: Any = None) -> Path:
    folder.mkdir()
    Report(kind, "title", configuration, figures or {}, commit="c", machine={}, versions={}).save(
        folder / "report.json"
    )
    return folder


def qa_run(
    folder: Path, scores: Mapping[tuple[str, str], Scores], sha256: str = "aa", **settings: object
) -> Path:
    dataset = {"name": "small", "sha256": sha256}
    report(folder, "qa", {"dataset": dataset, **settings})
    rows = [
        {
            "id": name,
            "mode": mode,
            "scores": found,
            "usage": {"completion_tokens": 7},
            "latency_ms": {"total_ms": 1234.5},
            "response": "ein Wort\u2028mehr",
        }
        for (mode, name), found in scores.items()
    ]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "items.jsonl").write_text(lines, encoding="utf-8")
    return folder


def speed_run(
    folder: Path,
    speeds: Mapping[tuple[str, str], Mapping[str, tuple[int, float]]],
    sha256: Sequence[str] = ("aa", "bb"),
) -> Path:
    """Writes tokens after the first, and their milliseconds, of each prompt."""
    rows = [
        {
            "category": category,
            "drafter": drafter,
            "prompts": [
                {
                    "id": name,
                    "num_tokens": tokens + 1,
                    "decode_ms": spent,
                    "tokens_per_second": 1e3 * tokens / spent if tokens else None,
                }
                for name, (tokens, spent) in prompts.items()
            ],
        }
        for (category, drafter), prompts in speeds.items()
    ]
    datasets = [{"name": f"set{digest}", "sha256": digest} for digest in sha256]
    return report(folder, "speed", {"datasets": datasets}, {"results": rows})


def rows_of(found: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["group"], row["measure"]): row for row in found["rows"]}


def shifted(shift: float, count: int = 40) -> dict[tuple[str, str], Scores]:
    random = np.random.default_rng(0)
    base, noise = random.normal(size=count), np.random.default_rng(1).normal(size=count)
    return {
        ("auto", str(at)): {"f1": float(base[at] + (0.1 * noise[at] + shift if shift else 0.0))}
        for at in range(count)
    }


def test_questions_are_paired_by_mode_and_id(tmp_path: Path) -> None:
    first = {("never", "1"): {"f1": 0.0}, ("never", "2"): {"f1": 1.0}, ("auto", "1"): {"f1": 0.5}}
    second: dict[tuple[str, str], Scores] = {
        key: {"f1": value["f1"] + 0.25} for key, value in reversed(first.items())
    }
    found = compare(qa_run(tmp_path / "a", first), qa_run(tmp_path / "b", second))
    rows = rows_of(found)
    assert found["kind"] == "qa"
    assert found["notes"] == []
    assert rows["never", "f1"] == {
        "group": "never", "measure": "f1", "a": 0.5, "b": 0.75, "difference": 0.25, "low": 0.25,
        "high": 0.25, "num_items": 2, "significant": False,
    }  # fmt: skip
    assert rows["auto", "f1"]["num_items"] == 1
    assert rows["auto", "total_ms"]["a"] == 1234.5
    assert rows["auto", "completion_tokens"]["difference"] == 0


def test_a_shift_is_found_and_turns_round_with_the_runs(tmp_path: Path) -> None:
    a, b = qa_run(tmp_path / "a", shifted(0)), qa_run(tmp_path / "b", shifted(0.2))
    row = rows_of(compare(a, b))["auto", "f1"]
    assert row["significant"]
    assert 0.1 < row["low"] < row["difference"] < row["high"] < 0.3
    back = rows_of(compare(b, a))["auto", "f1"]
    assert back["difference"] == pytest.approx(-row["difference"])
    assert not rows_of(compare(a, a))["auto", "f1"]["significant"]


def test_intervals_are_the_paired_ones_of_the_seed(tmp_path: Path) -> None:
    before, after = shifted(0), shifted(0.2)
    a, b = qa_run(tmp_path / "a", before), qa_run(tmp_path / "b", after)
    row = rows_of(compare(a, b, seed=5))["auto", "f1"]
    values = [[found["f1"] for found in run.values()] for run in (before, after)]
    expected = paired_difference(values[0], values[1], 5)
    assert (row["difference"], row["low"], row["high"]) == (
        expected.difference, expected.low, expected.high,
    )  # fmt: skip
    assert row != rows_of(compare(a, b, seed=6))["auto", "f1"]


def test_what_one_run_lacks_is_left_out_and_told(tmp_path: Path) -> None:
    first: dict[tuple[str, str], Scores] = {
        ("never", "1"): {"f1": 1.0, "contains": None},
        ("never", "2"): {"f1": 1.0},
    }
    second = {("never", "1"): {"f1": 0.0, "contains": 1.0, "new": 1.0}, ("auto", "1"): {"f1": 0.0}}
    found = compare(qa_run(tmp_path / "a", first), qa_run(tmp_path / "b", second))
    assert {group for group, _ in rows_of(found)} == {"never"}
    assert rows_of(found)["never", "f1"]["num_items"] == 1
    assert ("never", "contains") not in rows_of(found)
    assert found["notes"] == ["left out answers of one run only: 1 of the first, 1 of the second"]


def test_a_measure_of_later_questions_is_not_lost(tmp_path: Path) -> None:
    runs: dict[tuple[str, str], Scores] = {("auto", "1"): {"f1": 1.0}, ("auto", "2"): {"late": 1.0}}
    found = compare(qa_run(tmp_path / "a", runs), qa_run(tmp_path / "b", runs))
    assert rows_of(found)["auto", "late"]["num_items"] == 1


def test_what_else_differs_is_told(tmp_path: Path) -> None:
    a = qa_run(tmp_path / "a", shifted(0), k=3, seed=1)
    b = qa_run(tmp_path / "b", shifted(0), k=4, seed=1)
    assert compare(a, b)["notes"] == ["other settings: k"]


def test_speed_is_a_ratio_over_common_prompts(tmp_path: Path) -> None:
    first = {("qa", "none"): {"1": (10, 1000.0), "2": (30, 1000.0), "3": (10, 50.0)}}
    second = {("qa", "none"): {"1": (20, 1000.0), "2": (60, 1000.0)}, ("qa", "ngram"): {}}
    found = compare(speed_run(tmp_path / "a", first), speed_run(tmp_path / "b", second))
    row = rows_of(found)["qa none", "tokens_per_second"]
    assert (row["a"], row["b"], row["difference"]) == pytest.approx((20, 40, 2))
    assert (row["low"], row["high"]) == pytest.approx((2, 2))
    assert row["num_items"] == 2
    assert not row["significant"]  # of two prompts
    assert found["notes"] == ["left out arms of one run only: 0 of the first, 1 of the second"]


@pytest.mark.parametrize(("factor", "significant"), [(1.2, True), (1.0, False), (0.8, True)])
def test_pairs_show_a_change_that_prompts_would_hide(
    tmp_path: Path, factor: float, significant: bool
) -> None:
    random = np.random.default_rng(0)
    prompts = {str(at): (100, float(random.uniform(100, 9000))) for at in range(30)}
    slower = {
        name: (tokens, spent * float(random.uniform(0.95, 1.05)) / factor)
        for name, (tokens, spent) in prompts.items()
    }
    a = speed_run(tmp_path / "a", {("all", "suffix"): prompts})
    b = speed_run(tmp_path / "b", {("all", "suffix"): slower})
    row = rows_of(compare(a, b))["all suffix", "tokens_per_second"]
    assert row["difference"] == pytest.approx(factor, abs=0.03)
    assert row["low"] < row["difference"] < row["high"]
    assert row["significant"] == significant


def test_prompts_without_a_speed_and_single_prompts(tmp_path: Path) -> None:
    first = {("qa", "none"): {"1": (10, 1000.0), "2": (0, 0.0)}}
    second = {("qa", "none"): {"1": (20, 1000.0), "2": (10, 10.0)}}
    found = compare(speed_run(tmp_path / "a", first), speed_run(tmp_path / "b", second))
    row = rows_of(found)["qa none", "tokens_per_second"]
    assert (row["difference"], row["low"], row["num_items"]) == (2, None, 1)
    assert found["notes"] == ["left out answers of one run only: 0 of the first, 1 of the second"]
    assert "2.000" in render_comparison(found)


def test_other_sets_and_kinds_are_refused(tmp_path: Path) -> None:
    qa = qa_run(tmp_path / "qa", shifted(0))
    other = qa_run(tmp_path / "other", shifted(0), sha256="bb")
    speeds = {("qa", "none"): {"1": (10, 1000.0)}}
    speed = speed_run(tmp_path / "speed", speeds)
    with pytest.raises(ConfigError, match=r"small \(aa\) and small \(bb\)"):
        compare(qa, other)
    with pytest.raises(ConfigError, match="different sets"):
        compare(speed, speed_run(tmp_path / "speed2", speeds, ["aa", "cc"]))
    with pytest.raises(ConfigError, match="kind 'qa' and one of kind 'speed'"):
        compare(qa, speed)
    tuning = report(tmp_path / "tuning", "tuning", {})
    with pytest.raises(ConfigError, match="'tuning' cannot be compared"):
        compare(tuning, tuning)
    # The order of the sets is no difference.
    assert compare(speed, speed_run(tmp_path / "speed3", speeds, ["bb", "aa"]))["rows"]


def test_nothing_in_common_is_refused(tmp_path: Path) -> None:
    a = qa_run(tmp_path / "a", {("auto", "1"): {"f1": 1.0}})
    b = qa_run(tmp_path / "b", {("never", "1"): {"f1": 1.0}})
    with pytest.raises(ConfigError, match="in common"):
        compare(a, b)


@pytest.mark.parametrize(
    "items", [None, "{", "[]\n", "1\n", '{"mode": "auto", "id": "1"}\n', '{"mode": 1, "scores": 2}']
)
def test_answers_that_cannot_be_read_are_named(tmp_path: Path, items: str | None) -> None:
    good, bad = qa_run(tmp_path / "a", shifted(0)), qa_run(tmp_path / "b", shifted(0))
    (bad / "items.jsonl").unlink()
    if items is not None:
        (bad / "items.jsonl").write_text(items, encoding="utf-8")
    with pytest.raises(InputError, match=r"items\.jsonl"):
        compare(good, bad)


@pytest.mark.parametrize("figures", [{"other": 1}, {"results": [{"category": "qa"}]}])
def test_speed_reports_that_lack_figures_are_named(tmp_path: Path, figures: object) -> None:
    bad = report(tmp_path / "a", "speed", {}, figures)
    with pytest.raises(InputError, match="lacks figures"):
        compare(bad, bad)


def test_a_missing_report_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"report\.json"):
        compare(tmp_path, tmp_path)


def test_a_report_file_stands_for_its_folder(tmp_path: Path) -> None:
    a = qa_run(tmp_path / "a", shifted(0))
    assert compare(a, a / "report.json")["rows"] == compare(a, a)["rows"]


def test_the_table_is_aligned_and_narrow(tmp_path: Path) -> None:
    names = ["retrieval_recall", "citation_precision", "contains", "decode_ms"]
    runs: dict[tuple[str, str], Scores] = {
        ("multi_draft", str(at)): {name: float(at * 1000.0) for name in names} for at in range(9)
    }
    more = {key: {name: (value or 0) + 123 for name, value in found.items()}
            for key, found in runs.items()}  # fmt: skip
    found = compare(qa_run(tmp_path / "a", runs), qa_run(tmp_path / "b", more))
    lines = render_comparison(found).split("\n")
    table = [line for line in lines if line.startswith(("group", "multi_draft"))]
    assert len(table) == 7
    assert all(len(line) <= 100 for line in table)
    assert table[1].endswith("*")
    assert "+123.0 (+123.0 to +123.0)" in table[1]
    assert len({line.index("(") for line in table[1:5]}) == 1


def test_the_table_as_markdown(tmp_path: Path) -> None:
    runs: dict[tuple[str, str], Scores] = {("a|b", "1"): {"f1": 0.5}}
    folder = qa_run(tmp_path / "a", runs)
    found = compare(folder, folder)
    lines = render_comparison({**found, "notes": ["look"]}, markdown=True).split("\n")
    table = [line for line in lines if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in table} == {8}
    assert "a\\|b" in table[2]
    assert "- note: look" in lines
