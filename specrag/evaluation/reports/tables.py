"""The tables of a report, for any way of writing them: a caption, a head and cells of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specrag.evaluation.reports.report import Report
from specrag.evaluation.reports.terminal import interval_text


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
    made = {"qa": _qa, "speed": _speed, "tuning": _tuning}[report.kind](report.figures)
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
    plain = {
        name: value
        for name, value in report.configuration.items()
        if isinstance(value, str | int | float) and value != ""
    }
    rows += [(name.replace("_", " "), str(value)) for name, value in plain.items()]
    return Table("How it was measured", ("what", "value"), tuple(rows))


def _qa(figures: Mapping[str, Any]) -> list[Table]:
    modes = list(figures["modes"])
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
            tuple(
                (name.replace("_", " "), *(f"{figures['usage'][mode][name]:.2f}" for mode in modes))
                for name in figures["usage"][modes[0]]
            ),
        ),
        Table(
            "Milliseconds per question: mean, P50, P90, P99",
            ("stage", *modes),
            tuple(
                (
                    stage.removesuffix("_ms"),
                    *(_spread(figures["latency_ms"][mode][stage]) for mode in modes),
                )
                for stage in figures["latency_ms"][modes[0]]
            ),
        ),
        _gate(figures.get("gate")),
    ]


_MOST_CATEGORIES = 12


def _scores(caption: str, by_mode: Mapping[str, Any]) -> Table:
    modes = list(by_mode)
    measures = dict.fromkeys(name for found in by_mode.values() for name in found)
    rows = []
    for measure in measures:
        found = [by_mode[mode].get(measure) for mode in modes]
        if any(value and value["value"] is not None for value in found):
            counts = {str(value["num_items"]) for value in found if value and value["num_items"]}
            cells = [interval_text(value) for value in found]
            rows.append((measure.replace("_", " "), *cells, "/".join(sorted(counts, key=int))))
    return Table(caption, ("measure", *modes, "n"), tuple(rows))


def _gate(gate: Mapping[str, Any] | None) -> Table:
    head = ("looked up first by", "gain captured", "area", "AUROC wrong", "AUROC helps")
    if not gate:
        return Table("", head, ())
    rows = [
        (
            name.replace("_", " "),
            interval_text(gain, 1.0),
            _number(gate["area"][name], 3),
            _number(gate["auroc"][name]["wrong"], 3),
            _number(gate["auroc"][name]["helps"], 3),
        )
        for name, gain in gate["gain_captured"].items()
    ]
    measure = gate["measure"].replace("_", " ")
    caption = (
        f"Gates on {measure}: retrieval helps {gate['helps']:.1%} and hurts {gate['hurts']:.1%} "
        "of the questions"
    )
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
        _costs(figures.get("costs")),
    ]


def _tuning(figures: Mapping[str, Any]) -> list[Table]:
    advice = figures.get("advice", {})
    drafters = [
        (
            row["drafter"],
            _between(row, "tokens_per_second", 1),
            _between(row, "speedup", 2),
            _number(row["mean_acceptance_length"], 2),
            _share(row["acceptance"]),
        )
        for row in figures.get("drafters", ())
    ]
    sweep = [
        (
            row["drafter"],
            row["policy"],
            str(row["num_speculative_tokens"]),
            str(row["branching"]),
            _number(row["tokens_per_second"], 1),
            _number(row["speedup"], 2),
            _number(row["mean_acceptance_length"], 2),
        )
        for row in figures.get("sweep", ())
    ]
    return [
        Table("Advice", ("", ""), tuple((name, _plain(value)) for name, value in advice.items())),
        Table(
            "Drafters",
            ("drafter", "tokens/s", "speedup", "mean acceptance length", "accepted at depth 1"),
            tuple(drafters),
        ),
        Table(
            "All that was tried",
            (
                "drafter",
                "policy",
                "drafted",
                "branching",
                "tokens/s",
                "speedup",
                "acceptance length",
            ),
            tuple(sweep),
        ),
        _costs(figures.get("costs")),
    ]


def _costs(costs: Mapping[str, Any] | None) -> Table:
    if not costs or not costs.get("num_nodes"):
        return Table("", (), ())
    cells = tuple(_number(value, 2) for value in costs["relative"])
    head = ("N", *(str(size) for size in costs["num_nodes"]))
    return Table("Cost of a pass over N tokens, T(N) / T(1)", head, (("T(N) / T(1)", *cells),))


def _between(row: Mapping[str, Any], name: str, places: int) -> str:
    if row.get(f"{name}_low") is None:
        return _number(row.get(name), places)
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.{places}f} ({low:.{places}f}-{high:.{places}f})"


def _spread(found: Mapping[str, Any] | None) -> str:
    if not found or found.get("mean") is None:
        return "-"
    return ", ".join(f"{found[name]:.4g}" for name in ("mean", "p50", "p90", "p99"))


def _number(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:.{places}f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _plain(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(str(each) for each in value)
    return _number(value, 3) if isinstance(value, float) else str(value)
