"""The tables of a report, for any way of writing them: a caption, a head and cells of text."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specrag.evaluation.reports.report import Kind, Report
from specrag.evaluation.reports.terminal import gain_text, interval_text, points_text


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        caption: What it shows, with units.
        head: Names of the columns.
        rows: Cells, as many as columns.
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables_of(report: Report) -> list[Table]:
    """Returns the tables of a report; those without figures are left out.

    Args:
        report: Of any kind.
    """
    made = _TABLES[report.kind](report.figures)
    return [table for table in made if table.rows]


def origin(report: Report) -> Table:
    """Returns what it takes to repeat a report.

    Args:
        report: Of any kind.
    """
    machine = report.machine
    rows = [
        ("command", report.command),
        ("when", report.created_at),
        ("commit", report.commit or "an installed package"),
        ("processor", f"{machine.get('processor')}, {machine.get('cpu_capability')}"),
        ("threads", f"{machine.get('threads')} of {machine.get('cores')} cores"),
        ("accelerator", str(machine.get("accelerator") or "none")),
        ("seed", str(report.seed)),
        ("versions", ", ".join(f"{name} {found}" for name, found in report.versions.items())),
    ]
    rows += [pair for pair in _flat(report.configuration) if not pair[0].startswith("notes")]
    return Table("How it was measured", ("what", "value"), tuple(rows))


def _flat(told: Mapping[str, Any], above: str = "") -> list[tuple[str, str]]:
    """Returns settings by name, those of a part after its name; what is not set is left out."""
    rows: list[tuple[str, str]] = []
    for name, value in told.items():
        label = f"{above} {name.replace('_', ' ')}".strip()
        if isinstance(value, Mapping):
            rows += _flat(value, label)
        elif isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
            for number, each in enumerate(value, start=1):
                rows += _flat(each, f"{label} {number}")
        elif isinstance(value, list | tuple):
            rows += [(label, ", ".join(map(str, value)))] if value else []
        elif value is not None and value != "":
            rows.append((label, str(value)))
    return rows


def _qa(figures: Mapping[str, Any]) -> list[Table]:
    modes = list(figures["modes"])
    if not modes:
        return []
    counts = tuple(_most_items(figures["modes"][mode]) for mode in modes)
    return [
        _scores("Answers, per cent with 95 % intervals", figures["modes"]),
        *(
            _scores(f"Category {category}, per cent", found)
            for category, found in figures.get("categories", {}).items()
            if len(figures["categories"]) <= _MOST_CATEGORIES
        ),
        Table(
            "Per question",
            ("", *modes),
            (
                *(
                    (
                        name.replace("_", " "),
                        *(_number(figures["usage"][mode].get(name), 2) for mode in modes),
                    )
                    for name in figures["usage"][modes[0]]
                ),
                ("n", *counts),
            ),
        ),
        Table(
            "Milliseconds per question: mean, P50, P90, P99",
            ("stage", *modes),
            (
                *(
                    (
                        stage.removesuffix("_ms"),
                        *(_spread(figures["latency_ms"][mode].get(stage)) for mode in modes),
                    )
                    for stage in figures["latency_ms"][modes[0]]
                ),
                ("n", *counts),
            ),
        ),
        _gate(figures.get("gate")),
    ]


def _most_items(measures: Mapping[str, Any]) -> str:
    return str(max((found["num_items"] or 0 for found in measures.values()), default=0))


_MOST_CATEGORIES = 12


def _scores(caption: str, by_mode: Mapping[str, Any]) -> Table:
    modes = list(by_mode)
    measures = dict.fromkeys(name for found in by_mode.values() for name in found)
    rows = []
    for measure in measures:
        found = [by_mode[mode].get(measure) for mode in modes]
        if any(value and value["value"] is not None for value in found):
            counts = [str(value["num_items"] or 0) if value else "0" for value in found]
            cells = [interval_text(value) for value in found]
            # One number where all modes have as many, else one a mode, in the order of modes.
            told = counts[:1] if len(set(counts)) == 1 else counts
            rows.append((measure.replace("_", " "), *cells, "/".join(told)))
    return Table(caption, ("measure", *modes, "n"), tuple(rows))


def _gate(gate: Mapping[str, Any] | None) -> Table:
    head = ("looked up first by", "gain captured", "area", "AUROC wrong", "AUROC helps")
    if not gate:
        return Table("", head, ())
    rows = [
        (
            name.replace("_", " "),
            gain_text(gain),
            _number(gate["area"][name], 3),
            _number(gate["auroc"][name]["wrong"], 3),
            _number(gate["auroc"][name]["helps"], 3),
        )
        for name, gain in gate["gain_captured"].items()
    ]
    measure = gate["measure"].replace("_", " ")
    points = (gate.get("points") or {}).values()
    count = max((point["accuracy"]["num_items"] or 0 for point in points), default=0)
    helps, hurts = (_share(gate.get(name)) for name in ("helps", "hurts"))
    caption = f"Gates on {measure}: retrieval helps {helps} and hurts {hurts} of {count} questions"
    return Table(caption, head, tuple(rows))


def _speed(figures: Mapping[str, Any]) -> list[Table]:
    results = figures["results"]
    rows = [
        (
            row["category"],
            "plain" if row["drafter"] == "none" else row["drafter"],
            str(row["num_prompts"]),
            _number(row["mean_acceptance_length"], 2),
            _between(row, "tokens_per_second", 1),
            _between(row, "speedup", 2),
            _number(row.get("speedup_with_prefill"), 2),
            _spread(row.get("ms_per_token")),
            _share(row.get("equal_share")),
            _number(row.get("peak_memory_mb"), 0),
        )
        for row in results
    ]
    head = (
        "category", "arm", "prompts", "mean acceptance length", "tokens/s", "speedup",
        "with prefill", "ms/token: mean, P50, P90, P99", "equal to plain", "memory (MiB)",
    )  # fmt: skip
    tasks = [
        (
            row["task"],
            row["drafter"],
            _share(row["acceptance"]),
            f"{row['usual_low']:.0%} to {row['usual_high']:.0%}",
            str(row["num_drafts"]),
        )
        for row in figures.get("tasks", ())
    ]
    return [
        Table("Speed of decoding, with 95 % intervals over prompts", head, tuple(rows)),
        Table(
            "Acceptance of the first drafted token by task, beside the field's usual range",
            ("task", "drafter", "accepted", "usual", "drafts"),
            tuple(tasks),
        ),
        _differing(results),
        Table(
            "What failed",
            ("arm", "prompt", "message"),
            tuple(
                (row["arm"], row["prompt_id"], row["message"]) for row in figures.get("failed", ())
            ),
        ),
        Table(
            "Left out, too long for the context",
            ("prompt",),
            tuple((name,) for name in figures.get("left_out", ())),
        ),
        _costs(figures.get("costs")),
    ]


def _differing(results: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for row in results:
        margins = [found["margin"] for found in row.get("first_differences") or ()]
        if margins and row["category"] == "all":
            known = [margin for margin in margins if margin is not None]
            middle, most = (statistics.median(known), max(known)) if known else (None, None)
            count = f"{len(margins)} of {row['num_prompts']}"
            rows.append((row["drafter"], count, _number(middle, 4), _number(most, 4)))
    return Table(
        "Answers that differ from plain decoding, and the top-2 margin where they first do",
        ("arm", "answers", "median margin", "largest margin"),
        tuple(rows),
    )


def _tuning(figures: Mapping[str, Any]) -> list[Table]:
    advice = figures.get("advice", {})
    drafters = [
        (
            row["drafter"],
            _between(row, "tokens_per_second", 1),
            _between(row, "speedup", 2),
            _number(row["mean_acceptance_length"], 2),
            _share(row["acceptance"]),
            str(row.get("num_prompts", "-")),
        )
        for row in figures.get("drafters", ())
    ]
    return [
        Table("Advice", ("", ""), tuple((name, _plain(value)) for name, value in advice.items())),
        Table(
            "Drafters",
            (
                "drafter",
                "tokens/s",
                "speedup",
                "mean acceptance length",
                "accepted at depth 1",
                "prompts",
            ),
            tuple(drafters),
        ),
        _settings("All that was tried", figures.get("sweep", ())),
        _settings("Final, all prompts and all rounds", figures.get("finals", ())),
        _costs(figures.get("costs")),
    ]


def _settings(caption: str, found: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (
            row["drafter"],
            row["policy"],
            str(row["num_speculative_tokens"]),
            str(row["branching"]),
            _number(row["tokens_per_second"], 1),
            _between(row, "speedup", 2),
            _number(row["mean_acceptance_length"], 2),
            str(row.get("num_prompts", "-")),
        )
        for row in found
    ]
    head = (
        "drafter", "policy", "drafted", "branching", "tokens/s", "speedup",
        "acceptance length", "prompts",
    )  # fmt: skip
    return Table(caption, head, tuple(rows))


def _retrieval(figures: Mapping[str, Any]) -> list[Table]:
    names = tuple(figures["retrievers"])
    changes: dict[tuple[str, str], dict[str, str]] = {}
    for row in figures.get("differences", ()):
        pair = (row["first"], row["second"])
        changes.setdefault(pair, {})[row["measure"]] = points_text(row)
    measures = dict.fromkeys(name for found in changes.values() for name in found)
    differences = [
        (measure, *(found.get(measure, "-") for found in changes.values())) for measure in measures
    ]
    times = figures.get("latency_ms", {})
    return [
        _scores("Documents found, per cent with 95 % intervals", figures["retrievers"]),
        Table(
            "Differences in points with 95 % intervals, question by question; * leaves out zero",
            ("measure", *(f"{second} less {first}" for first, second in changes)),
            tuple(differences),
        ),
        Table(
            "Milliseconds of a lookup: mean, P50, P90, P99",
            ("", *names),
            (("lookup", *(_spread(times.get(name)) for name in names)),) if times else (),
        ),
        Table(
            "What was searched",
            ("", "number"),
            tuple((name, str(count)) for name, count in figures.get("collection", {}).items()),
        ),
    ]


def _costs(costs: Mapping[str, Any] | None) -> Table:
    if not costs or not costs.get("num_nodes"):
        return Table("", (), ())
    cells = tuple(_number(value, 2) for value in costs["relative"])
    head = ("N", *(str(size) for size in costs["num_nodes"]))
    return Table("Cost of a pass over N tokens, T(N) / T(1)", head, (("T(N) / T(1)", *cells),))


def _between(row: Mapping[str, Any], name: str, places: int) -> str:
    if row.get(name) is None or row.get(f"{name}_low") is None:
        return _number(row.get(name), places)
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.{places}f} ({low:.{places}f}-{high:.{places}f})"


def _spread(found: Mapping[str, Any] | None) -> str:
    if not found or found.get("mean") is None:
        return "-"
    # Engines that tell no times of passes have a mean and no percentiles.
    known = [found.get(name) for name in ("mean", "p50", "p90", "p99")]
    return ", ".join(_number(value, 0 if value and value >= 100 else 1) for value in known)


def _number(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:.{places}f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _plain(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(str(each) for each in value)
    return _number(value, 3) if isinstance(value, float) else str(value)


_TABLES: Mapping[Kind, Callable[[Mapping[str, Any]], list[Table]]] = {
    "qa": _qa,
    "speed": _speed,
    "tuning": _tuning,
    "retrieval": _retrieval,
}
