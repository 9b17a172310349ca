"""`specrag train eagle`, `medusa` and `distill`: trains a drafter on text of its target."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specrag.cli.arguments import show_progress
from specrag.cli.output import echo_field, echo_json
from specrag.cli.train import app

if TYPE_CHECKING:
    from specrag.training.kind import HeadKind
    from specrag.training.run import RunReport

_TARGET = "smollm2-135m-instruct"

_Data = Annotated[
    list[Path], typer.Option(metavar="FILE", help="Text of the target to learn from; repeat it.")
]
_Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder to write; an earlier run goes on.")]
_Target = Annotated[str, typer.Option(help="Model to draft for.")]
_Vocabulary = Annotated[int, typer.Option(min=1, help="Tokens that it can say.")]
_Epochs = Annotated[float, typer.Option(help="How often each text is used.")]
_Rows = Annotated[int | None, typer.Option(min=1, help="Most texts; all by default.")]
_MaxTokens = Annotated[int, typer.Option(min=2, help="Most tokens of a text.")]
_BatchTokens = Annotated[int, typer.Option(min=1, help="Tokens of a step.")]
_Optimizer = Annotated[str, typer.Option(help="muon or adamw.")]
_Rate = Annotated[float, typer.Option(help="Highest learning rate.")]
_Every = Annotated[int, typer.Option(min=1, help="Steps between looks at held-out texts.")]
_Features = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder for the target's states, to share.")
]
_BeginFrom = Annotated[
    str, typer.Option(metavar="HEAD", help="Head to train further: a folder or a hub name.")
]
_Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")]
_Seed = Annotated[int, typer.Option(help="Of weights and order.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("eagle")
def eagle(
    data: _Data,
    out: _Out,
    generation: Annotated[int, typer.Option(help="3, or 2 for the head of EAGLE-1 and 2.")] = 3,
    layers: Annotated[int, typer.Option(min=1, help="Its decoder layers.")] = 1,
    steps: Annotated[int, typer.Option(min=1, help="Levels of a draft in training.")] = 4,
    begin_from: _BeginFrom = "",
    target: _Target = _TARGET,
    vocabulary: _Vocabulary = 16384,
    epochs: _Epochs = 2.0,
    rows: _Rows = None,
    max_tokens: _MaxTokens = 640,
    batch_tokens: _BatchTokens = 2048,
    optimizer: _Optimizer = "muon",
    learning_rate: _Rate = 2e-3,
    evaluate_every: _Every = 100,
    features: _Features = None,
    device: _Device = "auto",
    seed: _Seed = 0,
    as_json: _Json = False,
) -> None:
    """Trains an EAGLE head, with training-time test."""
    from specrag.training.eagle import EagleLossSettings
    from specrag.training.eagle_kind import EagleKind

    weight = 0.0 if generation == 3 else 1.0
    loss = EagleLossSettings(steps, state_weight=weight)
    kind = EagleKind(generation, layers, loss, begin_from)
    settings = _settings(locals())
    _train(kind, settings, out, target, device, as_json)


@app.command("medusa")
def medusa(
    data: _Data,
    out: _Out,
    heads: Annotated[int, typer.Option(min=1, help="Tokens to look ahead.")] = 4,
    layers: Annotated[int, typer.Option(min=1, help="Residual blocks of a head.")] = 1,
    begin_from: _BeginFrom = "",
    target: _Target = _TARGET,
    vocabulary: _Vocabulary = 16384,
    epochs: _Epochs = 2.0,
    rows: _Rows = None,
    max_tokens: _MaxTokens = 640,
    batch_tokens: _BatchTokens = 2048,
    optimizer: _Optimizer = "muon",
    learning_rate: _Rate = 2e-3,
    evaluate_every: _Every = 100,
    features: _Features = None,
    device: _Device = "auto",
    seed: _Seed = 0,
    as_json: _Json = False,
) -> None:
    """Trains Medusa heads."""
    from specrag.training.medusa_kind import MedusaKind

    kind = MedusaKind(heads, layers, begin_from=begin_from)
    _train(kind, _settings(locals()), out, target, device, as_json)


@app.command("distill")
def distill(
    data: _Data,
    out: _Out,
    layers: Annotated[int, typer.Option(min=1, help="Layers, begun as the target's.")] = 2,
    target: _Target = _TARGET,
    vocabulary: _Vocabulary = 16384,
    epochs: _Epochs = 2.0,
    rows: _Rows = None,
    max_tokens: _MaxTokens = 640,
    batch_tokens: _BatchTokens = 2048,
    optimizer: _Optimizer = "muon",
    learning_rate: _Rate = 1e-3,
    evaluate_every: _Every = 100,
    features: _Features = None,
    device: _Device = "auto",
    seed: _Seed = 0,
    as_json: _Json = False,
) -> None:
    """Trains a draft model of a few of the target's layers."""
    from specrag.training.distill import DistillKind

    _train(DistillKind(layers), _settings(locals()), out, target, device, as_json)


@app.command("card")
def card(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Of a trained drafter.")],
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="REPORT", help="Report of specrag bench; repeat it."),
    ] = None,
    drafter: Annotated[str, typer.Option(help="As the reports name it, if they have more.")] = "",
    licence: Annotated[str, typer.Option(help="Of the weights, such as Apache-2.0.")] = "",
    as_json: _Json = False,
) -> None:
    """Shows the card of a trained drafter, and adds what a benchmark said of it."""
    from specrag.evaluation.reports.report import load_report
    from specrag.evaluation.speed.card import measured
    from specrag.training.card import read_card, write_card

    known = read_card(folder)
    found = [measured(load_report(path), drafter) for path in report or []]
    if found:
        known["measured"] = found
    if licence:
        known["licence"] = licence
    if found or licence:
        write_card(folder, known)
    if as_json:
        echo_json(known)
        return
    _echo_card(known)


def _echo_card(card: dict[str, Any]) -> None:
    typer.echo(f"{card.get('kind')} for {card.get('target')} ({card.get('fingerprint')})")
    for name in ("licence", "command", "seed", "steps", "seconds", "commit"):
        if card.get(name) is not None:
            echo_field(name.capitalize(), str(card[name]))
    for found in card.get("measured", ()):
        sets, kept = ", ".join(found["sets"]), found["quantization"]
        typer.echo(
            f"{found['drafter']} on {sets}, {found['max_tokens']} tokens, "
            f"temperature {found['temperature']:g}, weights packed: {kept}"
        )
        for category, row in found["categories"].items():
            shares = ", ".join(f"{share:.0%}" for share in row["acceptance_by_depth"][:8])
            length = row["mean_acceptance_length"]
            typer.echo(f"  {category}: {length:.2f} tokens a pass; by depth {shares}")


def _settings(options: dict[str, Any]) -> Any:
    from specrag.training.data import DataSettings
    from specrag.training.loop import TrainingSettings
    from specrag.training.optimizer import OptimizerSettings
    from specrag.training.run import RunSettings

    return RunSettings(
        DataSettings(tuple(options["data"]), options["max_tokens"], limit=options["rows"]),
        TrainingSettings(
            options["epochs"],
            options["batch_tokens"],
            OptimizerSettings(options["optimizer"], options["learning_rate"]),
            options["evaluate_every"],
            seed=options["seed"],
        ),
        options["vocabulary"],
        options["features"],
    )


def _train(
    kind: HeadKind, settings: Any, out: Path, target: str, device: str, as_json: bool
) -> None:
    from specrag.evaluation.machine import commit, machine
    from specrag.models.embedded import resolve
    from specrag.models.loader import load_target
    from specrag.models.tokenizer import Tokenizer
    from specrag.training.card import write_card
    from specrag.training.run import run_training

    source = resolve(target)
    tokenizer = Tokenizer.load(source)
    model = load_target(source, source.name, dtype="auto", device=device)
    report = run_training(kind, settings, model, tokenizer, out, progress=show_progress())
    command = shlex.join(["specrag", *sys.argv[1:]])
    card = {**report.card, "command": command, "machine": machine(), "commit": commit()}
    write_card(out, card)
    _draw(report, out)
    if as_json:
        echo_json({**card, "history": list(report.history)})
        return
    _echo(card, out)


def _draw(report: RunReport, out: Path) -> None:
    from specrag.errors import MissingExtraError
    from specrag.evaluation.plots.canvas import save
    from specrag.evaluation.plots.training import training_curves

    title = f"{report.card['kind']} for {report.card['target']}"
    try:
        figure = training_curves(report.history, title)
    except MissingExtraError as error:  # what was trained is there, with or without its picture
        typer.echo(f"no picture of the training: {error}", err=True)
        return
    if figure is not None:
        save(figure, out / "training.png")


def _echo(card: dict[str, Any], out: Path) -> None:
    typer.echo(f"{out}: {card['kind']} for {card['target']}, {card['steps']} steps")
    found = card["held_out"] or {}
    accepted = [value for name, value in found.items() if name.startswith("accepted_")]
    shares = ", ".join(f"{value:.1%}" for value in accepted)
    echo_field("Accepted", f"{shares} by depth, on texts held out")
    echo_field("Time", f"{card['seconds']} s")
    drafter = shlex.quote(f"{card['kind']}:{out}")
    typer.echo(f"specrag generate --drafter {drafter} ...")  # to be copied, so never wrapped
