"""Pictures of speed and tuning reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specrag.evaluation.plots.canvas import COLOURS, HATCHES, legend_below, new_axes, style

Figures = Mapping[str, Any]
Row = Mapping[str, Any]

ALL = "all"  # the category of all prompts together


def speed_by_drafter(figures: Figures) -> Any:
    """Draws tokens per second of each arm, category by category.

    Args:
        figures: Of a report of kind ``speed``.
    """
    return _grouped(figures, "tokens_per_second", "tokens per second", "Speed of decoding", None)


def speedup_by_drafter(figures: Figures) -> Any:
    """Draws how many times faster than plain decoding each arm is.

    Args:
        figures: Of a report of kind ``speed``.
    """
    return _grouped(figures, "speedup", "times plain decoding", "Speed over plain decoding", 1.0)


def acceptance_by_depth(figures: Figures) -> Any:
    """Draws the share of drafts that were accepted to each depth.

    Args:
        figures: Of a report of kind ``speed`` or ``tuning``.
    """
    rows = [row for row in _overall(figures) if row.get("acceptance_by_depth")]
    if not rows:
        return None
    figure, axes = new_axes(
        "depth in the draft (tokens)", "drafts accepted that far (%)", "Acceptance by depth"
    )
    for number, row in enumerate(rows):
        values = [100 * value for value in row["acceptance_by_depth"]]
        look = style(number)
        axes.plot(range(1, len(values) + 1), values, label=row["drafter"], markersize=5, **look)
    axes.set_ylim(bottom=0)
    legend_below(axes)
    return figure


def acceptance_by_task(figures: Figures) -> Any:
    """Draws the acceptance of first drafted tokens by task beside the field's usual ranges.

    Args:
        figures: Of a report of kind ``speed``.
    """
    rows = [row for row in figures.get("tasks", ()) if row.get("acceptance") is not None]
    if not rows:
        return None
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    drafters = list(dict.fromkeys(row["drafter"] for row in rows))
    figure, axes = new_axes("drafted tokens accepted (%)", "", "Acceptance by task", 3.6)
    for place, task in enumerate(tasks):
        usual = next(row for row in rows if row["task"] == task)
        low, high = (usual[name] for name in ("usual_low", "usual_high"))
        axes.barh(
            [place],
            [100 * (high - low)],
            left=[100 * low],
            height=0.7,
            color="#DDDDDD",
            label="usual range of learned drafts" if not place else None,
        )
    for number, drafter in enumerate(drafters):
        found = [
            (100 * r["acceptance"], tasks.index(r["task"])) for r in rows if r["drafter"] == drafter
        ]
        look = {**style(number), "linestyle": ""}
        axes.plot(*zip(*found, strict=True), label=drafter, markersize=8, **look)
    axes.set_yticks(range(len(tasks)), tasks)
    axes.set_xlim(0, 100)
    axes.invert_yaxis()
    legend_below(axes)
    return figure


def latency_per_token(figures: Figures) -> Any:
    """Draws the median and the slow end of the time per token of each arm.

    Args:
        figures: Of a report of kind ``speed``.
    """
    rows = [row for row in _overall(figures) if (row.get("ms_per_token") or {}).get("p50")]
    if not rows:
        return None
    figure, axes = new_axes("milliseconds per token", "", "Time per token", 1.6 + 0.42 * len(rows))
    for place, row in enumerate(rows):
        found = row["ms_per_token"]
        axes.plot([found["p50"], found["p99"]], [place, place], color="#BBBBBB", linewidth=3)
        for number, name in enumerate(("p50", "p90", "p99")):
            look = {**style(number), "linestyle": ""}
            label = name.upper() if not place else None
            axes.plot([found[name]], [place], label=label, markersize=8, **look)
    axes.set_yticks(range(len(rows)), [row["drafter"] for row in rows])
    axes.set_xlim(left=0)
    axes.invert_yaxis()
    legend_below(axes)
    return figure


def pass_costs(figures: Figures) -> Any:
    """Draws what a pass costs over the number of tokens in it.

    Args:
        figures: Of a report of kind ``speed`` or ``tuning``.
    """
    costs = figures.get("costs") or {}
    if len(costs.get("num_nodes", ())) < 2:
        return None
    figure, axes = new_axes("tokens in a pass, N", "T(N) / T(1)", "What a pass of the target costs")
    sizes = costs["num_nodes"]
    axes.plot(sizes, costs["relative"], label="measured", markersize=6, **style(0))
    axes.plot(sizes, sizes, color="grey", linestyle=":", label="N passes of one token")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_ylim(0, 1.3 * max(costs["relative"]))
    legend_below(axes)
    return figure


def gamma_sweep(figures: Figures) -> Any:
    """Draws the speed over the length of drafts, a line for each drafter.

    Args:
        figures: Of a report of kind ``tuning``.
    """
    chains = [row for row in figures.get("sweep", ()) if row["policy"] == "fixed"]
    lines = _lines(chains, ("drafter", "branching"), "num_speculative_tokens")
    if not lines:
        return None
    figure, axes = new_axes(
        "most drafted tokens a pass", "times plain decoding", "How much to draft"
    )
    axes.axhline(1.0, color="grey", linewidth=0.8)
    for number, (key, points) in enumerate(lines.items()):
        best = max(range(len(points)), key=lambda place: points[place][1])
        label = f"{key[0]}, branching {key[1]}"
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, label=label, markersize=5, **style(number))
        axes.annotate(
            f"{ys[best]:.2f}", (xs[best], ys[best]), textcoords="offset points", xytext=(0, 7),
            fontsize=9, ha="center",
        )  # fmt: skip
    legend_below(axes, 3)
    return figure


def _grouped(figures: Figures, name: str, ylabel: str, title: str, line: float | None) -> Any:
    rows = [row for row in figures.get("results", ()) if row.get(name) is not None]
    if not rows:
        return None
    categories = list(dict.fromkeys(row["category"] for row in rows))
    drafters = list(dict.fromkeys(row["drafter"] for row in rows))
    figure, axes = new_axes("", ylabel, title, 4.4)
    width = 0.84 / len(drafters)
    for number, drafter in enumerate(drafters):
        own = {row["category"]: row for row in rows if row["drafter"] == drafter}
        places = [
            place + (number - (len(drafters) - 1) / 2) * width
            for place, category in enumerate(categories)
            if category in own
        ]
        found = [own[category] for category in categories if category in own]
        axes.bar(
            places,
            [row[name] for row in found],
            width * 0.92,
            yerr=_errors(found, name),
            capsize=2,
            color=COLOURS[number % len(COLOURS)],
            hatch=HATCHES[number % len(HATCHES)],
            edgecolor="white",
            label="plain" if drafter == "none" else drafter,
        )
    if line is not None:
        axes.axhline(line, color="black", linewidth=0.8)
    labels = [category.replace("_", "\n") for category in categories]
    axes.set_xticks(range(len(categories)), labels, fontsize=9)
    legend_below(axes)
    return figure


def _errors(rows: Sequence[Row], name: str) -> Any:
    if any(row.get(f"{name}_low") is None for row in rows):
        return None
    return [
        [max(0.0, row[name] - row[f"{name}_low"]) for row in rows],
        [max(0.0, row[f"{name}_high"] - row[name]) for row in rows],
    ]


def _overall(figures: Figures) -> list[Row]:
    """Returns one row an arm: over all prompts where a report has that, else what it has."""
    rows = list(figures.get("results", ())) or list(figures.get("drafters", ()))
    return [row for row in rows if row.get("category") == ALL] or rows


def _lines(
    rows: Sequence[Row], keys: tuple[str, str], x: str
) -> dict[tuple[Any, Any], list[tuple[float, float]]]:
    found: dict[tuple[Any, Any], list[tuple[float, float]]] = {}
    for row in rows:
        if row.get("speedup") is not None:
            found.setdefault((row[keys[0]], row[keys[1]]), []).append((row[x], row["speedup"]))
    return {key: sorted(points) for key, points in found.items()}
