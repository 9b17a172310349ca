"""`specrag gate`: what the retrieval gate decides, and its calibration."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specrag.cli.arguments import load_rag, read_question, show_progress
from specrag.cli.output import bold, echo_field, echo_json
from specrag.errors import GateError

if TYPE_CHECKING:
    from specrag.gate.calibration import Calibration
    from specrag.gate.policy import GateDecision
    from specrag.retrieval.document import ScoredPassage

app = typer.Typer(no_args_is_help=True)

_Pipeline = Annotated[
    str, typer.Option("--pipeline", "-p", help="Name or TOML file of a pipeline.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("explain")
def explain(
    question: Annotated[str, typer.Argument(help="The question; - reads standard input.")],
    pipeline: _Pipeline = "qa",
    as_json: _Json = False,
) -> None:
    """Shows what the gate decides on a question, and from which figures."""
    question = read_question(question)
    from specrag.rag.events import PassagesEvent

    decision, passages = load_rag(pipeline).explain(question)
    if as_json:
        echo_json({**decision.to_dict(), **PassagesEvent(passages).to_dict()})
    else:
        _echo_decision(decision, passages)


@app.command("calibrate")
def calibrate(
    pipeline: _Pipeline = "qa",
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Labelled questions; by default calibration.jsonl beside the index's recipe.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Where to write; by default where the pipeline looks for it.",
        ),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Fits the gate of a pipeline to labelled questions."""
    from specrag.rag.config import load_pipeline

    config = load_pipeline(pipeline)
    from specrag.rag import calibrate as fitting
    from specrag.rag.build import SpecRAG, calibration_path

    questions = fitting.load_labels(labels or fitting.default_labels(config))
    target = output or fitting.default_output(config)
    _check_place(target)
    rag = SpecRAG.from_config(config, progress=show_progress())
    calibration = fitting.calibrate(rag, questions, progress=show_progress())
    calibration.save(target)
    if as_json:
        echo_json(_calibration_dict(calibration, target))
        return
    _echo_calibration(calibration, target)
    if (used := calibration_path(config)) is None or used.resolve() != target.resolve():
        typer.echo(
            f"to use it, put this under [gate] in the pipeline file: calibration = "
            f'"{target.name}" (a path relative to that file)',
            err=True,
        )


def _echo_decision(decision: GateDecision, passages: Sequence[ScoredPassage]) -> None:
    echo_field("Retrieve", "yes" if decision.retrieve else "no")
    echo_field("Zone", decision.zone)
    echo_field("Reason", decision.reason)
    typer.echo()
    figures = {
        "p_without": decision.p_without,
        "p_with": decision.p_with,
        "threshold": decision.threshold,
        **decision.signals,
    }
    for name, value in figures.items():
        if value is not None:
            typer.echo(f"{name:<26}{_number(value):>12}")
    if not decision.signals:
        typer.echo("no signals were read")
    if decision.fingerprint:
        typer.echo(f"{'fingerprint':<26}{decision.fingerprint:>12}")
    for found in passages:
        place = f"{found.passage.document}, characters {found.passage.start}-{found.passage.end}"
        typer.echo(f"{bold('passage')}  {found.score:.2f}  {place}")


def _number(value: float) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _check_place(path: Path) -> None:
    """Measuring takes minutes, which should not be in vain."""
    if not os.access(path.parent, os.W_OK) or path.is_dir():
        raise GateError(
            f"cannot write a calibration to {str(path)!r}",
            hint="name a file in a folder that exists: --output FILE.json",
        )


def _calibration_dict(calibration: Calibration, path: Path) -> dict[str, Any]:
    return {
        "path": str(path),
        "fingerprint": calibration.fingerprint,
        "fitted_on": dict(calibration.fitted_on),
        "num_labels": calibration.num_labels,
        "confident_above": calibration.confident_above,
        "needed_below": calibration.needed_below,
        "min_score": calibration.min_score,
        "report": dict(calibration.report),
    }


def _echo_calibration(calibration: Calibration, path: Path) -> None:
    report = calibration.report
    typer.echo(f"{calibration.num_labels} questions, AUROC {report['auroc']:.3f} (out of fold)\n")
    typer.echo(bold(f"{'questions that need':<22}{'confident':>11}{'unsure':>11}{'needed':>11}"))
    for label, key in (("documents", "needs_documents"), ("none", "needs_none")):
        confident, needed = report[f"{key}_confident"], report[f"{key}_needed"]
        shares = (confident, 1 - confident - needed, needed)
        typer.echo(f"{label:<22}" + "".join(f"{abs(share):>11.1%}" for share in shares))
    typer.echo()
    echo_field("confident", f"p(good without documents) from {calibration.confident_above:.4f}")
    echo_field("needed", f"below {calibration.needed_below:.4f}")
    echo_field("unsure", f"passages are used from score {calibration.min_score:.4f}")
    typer.echo(f"{'written to':<12}{path}")
