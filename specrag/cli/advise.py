"""`specrag advise`: whether speculation pays, how much of it, and what to use."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from specrag.cli.output import bold, echo_json

_WIDTH = 100
_LABEL, _CELL = 24, 8
_FEW = 30  # drafts that say little
_MODEL = "smollm2-135m-instruct"


_Alpha = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Acceptance of a drafted token; 0.7, or as measured."),
]
_Epsilon = Annotated[
    float | None,
    typer.Option(min=0, help="Time to draft a token, in passes of the target; 0, or as measured."),
]
_Use = Annotated[
    str | None, typer.Option(help="code, long_text, chat, streaming or batch; all by default.")
]
_Costs = Annotated[
    str,
    typer.Option(
        metavar="measured|flat|FILE|PAIRS",
        help="What a pass costs by its size; pairs are such as 1:29,8:32,16:42.",
    ),
]
_FromJson = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json", help="Acceptance from the JSON of specrag bench or generate."
    ),
]
_Plot = Annotated[
    Path | None, typer.Option(metavar="FILE.png", help="Draw speedup over draft length.")
]


def advise(
    alpha: _Alpha = None,
    epsilon: _Epsilon = None,
    use: _Use = None,
    batch_size: Annotated[int, typer.Option(min=1, max=4096, help="Rows that share a pass.")] = 1,
    model: Annotated[str, typer.Option(help="Target whose passes count.")] = _MODEL,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    costs: _Costs = "measured",
    max_gamma: Annotated[int, typer.Option(min=1, max=256, help="Longest draft to consider.")] = 16,
    from_json: _FromJson = None,
    plot: _Plot = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Calculates what speculation brings and says what to use, for this machine or given costs."""
    from specrag.evaluation.advise import advise_report
    from specrag.evaluation.cost_table import read_costs
    from specrag.evaluation.measured_acceptance import load_acceptance
    from specrag.evaluation.plots.canvas import check_plot
    from specrag.evaluation.plots.speedup import plot_speedup
    from specrag.evaluation.uses import USES, check_use

    # What can be wrong is checked before the seconds that loading takes.
    uses = list(USES) if use is None else [check_use(use)]
    measured = load_acceptance(from_json) if from_json else []
    if plot:
        check_plot(plot)
    report = advise_report(
        read_costs(costs, model, dtype=dtype, on_load=lambda: _say_loading(model)),
        alpha=alpha,
        epsilon=epsilon,
        batch_size=batch_size,
        max_gamma=max_gamma,
        uses=uses,
        measured=measured,
    )
    if plot:
        curves = [(f"alpha {row['label']}", row["curve"]) for row in report["rows"]]
        plot_speedup(plot, curves, f"Pass costs {report['costs']['source']}")
        typer.echo(f"drew {plot}", err=True)
    if as_json:
        echo_json(report)
    else:
        _echo_report(report)


def _say_loading(model: str) -> None:
    typer.echo(f"loading {model} to learn what its passes cost here ...", err=True)


def _echo_report(report: dict[str, Any]) -> None:
    _echo_assumptions(report)
    gammas = report["gammas"]
    _echo_head("Expected tokens a pass: (1 - alpha^(gamma+1)) / (1 - alpha)")
    typer.echo(_line("alpha", [f"gamma {gammas[0]}", *map(str, gammas[1:])]))
    for row in report["rows"]:
        typer.echo(_line(row["label"], [f"{value:.2f}" for value in row["expected_tokens"]]))
    _echo_head("Speedup: expected tokens / (T(1+gamma)/T(1) + gamma * epsilon)")
    names = [f"gamma {gammas[0]}", *map(str, gammas[1:]), "best", "at best"]
    timed = [row for row in report["rows"] if row["measured"] and row["measured"]["speedup"]]
    typer.echo(_line("alpha", names + [" measured"] * bool(timed)))
    for row in report["rows"]:
        typer.echo(_line(row["label"], _speeds(row)))
    _echo_measured(report["rows"])
    _echo_verdict(report)
    _echo_batches(report)
    for advised in report["uses"]:
        _echo_use(advised)
    _echo_head("Notes")
    for note in report["notes"]:
        _echo_wrapped(note, first="- ", rest="  ")


def _echo_assumptions(report: dict[str, Any]) -> None:
    given, costs = report["assumptions"], report["costs"]
    pairs = zip(costs["num_nodes"], costs["relative"], strict=True)
    _echo_wrapped(f"Pass costs T(N)/T(1), {costs['source']}:")
    _echo_wrapped("  ".join(f"{size}:{cost:.2f}" for size, cost in pairs), first="  ", rest="  ")
    if costs["extrapolated_beyond"]:
        beyond = costs["extrapolated_beyond"]
        _echo_wrapped(f"on a straight line beyond {beyond} nodes", first="  ", rest="  ")
    typer.echo(
        f"alpha {given['alpha']:.2f} ({given['alpha_source']}), epsilon {given['epsilon']:g}, "
        f"batch of {given['batch_size']}, drafts of at most {given['max_gamma']} tokens"
    )


def _speeds(row: dict[str, Any]) -> list[str]:
    best = str(row["best_gamma"]) if row["pays"] else "none"
    cells = [f"{value:.2f}x" for value in row["speedup"]] + [best, f"{row['best_speedup']:.2f}x"]
    if row["measured"] and row["measured"]["speedup"] is not None:
        cells.append(f"{row['measured']['speedup']:>{_CELL}.2f}x")
    return cells


def _echo_measured(rows: list[dict[str, Any]]) -> None:
    found = [row for row in rows if row["measured"]]
    if not found:
        return
    _echo_head("Measured acceptance by depth, of the drafts accepted until there")
    for row in found:
        _echo_wrapped(_measured(row), first="  ", rest="    ")
    _echo_wrapped(
        "Drafts that ended earlier count as not accepted, so acceptance is rather higher; a "
        "measured speedup is of drafts whose length changed from pass to pass.",
        first="  ",
        rest="  ",
    )


def _measured(row: dict[str, Any]) -> str:
    figures = row["measured"]
    depths = " ".join(f"{rate:.2f}" for rate in figures["alpha_by_depth"])
    rounds = figures["num_rounds"]
    of = f"{rounds} {figures['basis']}" if rounds is not None else figures["basis"]
    few = " (few: measure more)" if rounds is not None and rounds < _FEW else ""
    text = f"{row['label']}: {depths}; alpha {row['alpha']:.2f} over all depths, from {of}{few}"
    text += f", epsilon {row['epsilon']:.3f}"
    if figures["coverage"] == 1:
        return text
    overall = figures["speedup_over_all_passes"]
    return f"{text}; {figures['coverage']:.0%} of passes had a draft: {overall:.2f}x over all"


def _echo_verdict(report: dict[str, Any]) -> None:
    typer.echo()
    given, least = report["assumptions"], report["break_even_alpha"]
    answer = "Speculation pays" if report["pays"] else "Speculation does not pay"
    if least is None:
        why = "with these costs not even certain acceptance is worth a draft"
    else:
        why = f"with these costs it pays above alpha {least:.2f}"
    typer.echo(bold(f"{answer} at alpha {given['alpha']:.2f}: {why}."))


def _echo_batches(report: dict[str, Any]) -> None:
    _echo_head(f"What a batch does to it, at alpha {report['assumptions']['alpha']:.2f}")
    rows = report["batches"]
    lines = {
        "rows": [str(row["batch_size"]) for row in rows],
        "best gamma": [str(row["best_gamma"] or "none") for row in rows],
        "speedup": [f"{row['best_speedup']:.2f}x" for row in rows],
        "pays above alpha": [_or_never(row["break_even_alpha"]) for row in rows],
    }
    for label, cells in lines.items():
        typer.echo(_line(label, cells))


def _or_never(alpha: float | None) -> str:
    return "never" if alpha is None else f"{alpha:.2f}"


def _echo_use(advised: dict[str, Any]) -> None:
    _echo_head(f"{advised['use']}: drafter {advised['drafter']}, policy {advised['policy']}")
    _echo_wrapped(f"{advised['reason']} {advised['here']}", first="  ", rest="  ")
    if advised["difference"]:
        _echo_wrapped(advised["difference"], first="  ", rest="  ")
    _echo_wrapped(f"compare with: {', '.join(advised['alternatives'])}", first="  ", rest="  ")


def _echo_head(text: str) -> None:
    typer.echo()
    typer.echo(bold(text))


def _line(label: str, cells: list[str]) -> str:
    shown = label if len(label) < _LABEL else f"{label[: _LABEL - 4]}..."
    return f"  {shown:<{_LABEL}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)


def _echo_wrapped(text: str, first: str = "", rest: str = "") -> None:
    typer.echo(textwrap.fill(text, _WIDTH, initial_indent=first, subsequent_indent=rest))
