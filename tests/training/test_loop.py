from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from specrag.errors import ConfigError
from specrag.training.data import TrainingData
from specrag.training.loop import HISTORY, STATE, Training, TrainingSettings
from specrag.training.optimizer import OPTIMIZERS, OptimizerSettings
from tests.training.kit import Guess, data, texts


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    return data(tmp_path_factory.mktemp("features"), (-1,))


def settings(name: str = "muon", **options: Any) -> TrainingSettings:
    usual: dict[str, Any] = {"epochs": 2.5, "batch_tokens": 120, "evaluate_every": 3}
    return TrainingSettings(**{**usual, "optimizer": OptimizerSettings(name, 0.02), **options})


def weights(model: Guess) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


class Killed(Exception):
    pass


def killing(after: int) -> Callable[[], bool]:
    steps = itertools.count(1)

    def stop() -> bool:
        if next(steps) == after:
            raise Killed
        return False

    return stop


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("save_seconds", [0.0, 1e9])
def test_it_may_be_killed_and_stopped_at_any_step(
    name: str, save_seconds: float, corpus: TrainingData, tmp_path: Path
) -> None:
    """Bit for bit what it would have been, whatever was saved last."""
    wanted, chosen = Guess(), settings(name, save_seconds=save_seconds)
    whole = Training(wanted, corpus, chosen, tmp_path / "whole")
    expected = timeless(whole.run())
    assert whole.step == whole.num_steps > 9

    stopped = 0
    for first in range(1, whole.num_steps, 2):
        folder = tmp_path / str(first)
        with pytest.raises(Killed):
            Training(Guess(), corpus, chosen, folder).run(stop=killing(first))
        Training(Guess(), corpus, chosen, folder).run(stop=lambda: True)
        with (folder / HISTORY).open("a", encoding="utf-8") as file:
            file.write('{"step": 1, "sec')  # the power went
        again = Training(model := Guess(seed=3), corpus, chosen, folder)
        stopped += again.step
        rows = again.run()
        assert timeless(rows) == expected
        lines = (folder / HISTORY).read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == rows
        assert all(map(torch.equal, weights(model), weights(wanted)))
        assert again.seconds >= rows[0]["seconds"]
    assert stopped >= whole.num_steps // 2


def test_history_has_a_row_each_time_it_is_measured(corpus: TrainingData, tmp_path: Path) -> None:
    training = Training(Guess(), corpus, settings(), tmp_path)
    rows = training.run()
    last = training.num_steps
    assert [row["step"] for row in rows] == [*range(3, last, 3), last]
    assert rows == training.history()
    assert rows[-1]["held_out"] == training.evaluate()
    assert rows[-1]["train"]["loss"] < rows[0]["train"]["loss"]
    assert set(rows[0]["train"]) == set(rows[0]["held_out"]) == {"loss", "accepted_0"}
    assert 0 <= rows[0]["held_out"]["accepted_0"] <= 1


def test_what_ended_stays_as_it_is(corpus: TrainingData, tmp_path: Path) -> None:
    rows = Training(model := Guess(), corpus, settings(), tmp_path).run()
    assert Training(other := Guess(4), corpus, settings(), tmp_path).run() == rows
    assert all(map(torch.equal, weights(model), weights(other)))


def test_each_epoch_goes_through_the_texts_in_another_order(
    corpus: TrainingData, tmp_path: Path
) -> None:
    model = Guess()
    training = Training(model, corpus, settings(epochs=3), tmp_path)
    training.run(stop=lambda: training.step == 1)
    model.seen.clear()
    training._measure = lambda *_: None  # type: ignore[method-assign]
    training.step = 0
    training.run()
    used = [tuple(row[row != 0].tolist()) for batch in model.seen for row in batch]
    wanted = [tuple(t for t in texts()[place].token_ids if t) for place in corpus.train]
    third = len(wanted)
    epochs = [used[:third], used[third : 2 * third], used[2 * third :]]
    assert all(sorted(epoch) == sorted(wanted) for epoch in epochs)
    assert epochs[0] != epochs[1]
    held_out = {tuple(t for t in texts()[place].token_ids if t) for place in corpus.held_out}
    assert not held_out & set(used)


def test_a_part_of_an_epoch_is_a_part_of_its_batches(corpus: TrainingData, tmp_path: Path) -> None:
    steps = [
        Training(Guess(), corpus, settings(epochs=epochs), tmp_path / str(epochs)).num_steps
        for epochs in (1, 1.5, 2, 0.5)
    ]
    assert steps[0] < steps[1] < steps[2]
    assert abs(steps[3] - steps[0] / 2) <= 0.5
    tiny = Training(Guess(), corpus, settings(epochs=1e-6), tmp_path / "tiny")
    assert tiny.num_steps == 1  # something must be learned


def test_evaluation_is_the_mean_over_positions(corpus: TrainingData, tmp_path: Path) -> None:
    """However the texts are batched, and nothing is learned from them."""
    found = []
    for batch_tokens in (1, 60, 10_000):
        model = Guess()
        before = weights(model)
        folder = tmp_path / str(batch_tokens)
        training = Training(model, corpus, settings(batch_tokens=batch_tokens), folder)
        found.append(training.evaluate())
        assert all(map(torch.equal, weights(model), before))
        assert model.training
        assert all(parameter.grad is None for parameter in model.parameters())
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert found[2] == pytest.approx(found[0], rel=1e-4)


OTHERS: list[dict[str, Any]] = [
    {"epochs": 3.0},
    {"batch_tokens": 121},
    {"seed": 5},
    {"optimizer": OptimizerSettings("adamw", 0.02)},
    {"optimizer": OptimizerSettings("muon", 0.01)},
    {"optimizer": OptimizerSettings("muon", 0.02, weight_decay=0.5)},
    {"optimizer": OptimizerSettings("muon", 0.02, warmup=0.5)},
]


def test_another_training_is_refused_in_its_folder(corpus: TrainingData, tmp_path: Path) -> None:
    def begin(
        change: dict[str, Any], used: TrainingData = corpus, model: Guess | None = None
    ) -> None:
        Training(model or Guess(), used, settings(**change), tmp_path, about={"kind": "a"})

    about = {"kind": "a"}
    Training(Guess(), corpus, settings(), tmp_path, about=about).run(stop=lambda: True)
    before = (tmp_path / STATE).read_bytes()
    for change in OTHERS:
        with pytest.raises(ConfigError, match="holds a training with other settings") as caught:
            begin(change)
        assert caught.value.hint == "name another folder, or remove this one"
    with pytest.raises(ConfigError, match="num_texts"):
        begin({}, replace(corpus, train=corpus.train[1:]))
    other_texts = [*reversed(texts()[4:]), *texts()[:4]]
    store = type(corpus.store)(tmp_path / "f", corpus.store._target, other_texts, (-1,))
    with pytest.raises(ConfigError, match="features"):
        begin({}, replace(corpus, store=store, texts=other_texts))
    with pytest.raises(ConfigError, match="other weights: inner"):
        begin({}, model=Guess(width=9))
    assert (tmp_path / STATE).read_bytes() == before
    with pytest.raises(ConfigError, match=r"{'kind': 'a'}, not {'kind': 'b'}"):
        Training(Guess(), corpus, settings(), tmp_path, about={"kind": "b"})
    begin({"evaluate_every": 1, "save_seconds": 3.0})  # which change nothing that is learned


@pytest.mark.parametrize("name", ["epochs", "batch_tokens", "evaluate_every"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_settings_that_are_none_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be above 0, got {value}"):
        TrainingSettings(**{name: value})  # type: ignore[arg-type]


def test_a_bar_is_shown_when_wanted(
    corpus: TrainingData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Training(Guess(), corpus, settings(epochs=1), tmp_path / "a").run()
    assert capsys.readouterr().err == ""
    Training(Guess(), corpus, settings(epochs=1), tmp_path / "b").run(progress=True)
    shown = capsys.readouterr().err
    assert "training: 100%" in shown
    assert "held out" in shown
