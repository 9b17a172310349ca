from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.drafter import named_drafter
from specrag.decoding.generator import Generation, SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.drafters.checkpoints.reader import read_checkpoint
from specrag.errors import ConfigError, InputError
from specrag.home import home
from specrag.models.lean_target import LeanTarget
from specrag.models.slim import load_slim
from specrag.models.tiny import tiny_target
from specrag.training.data import DataSettings
from specrag.training.distill import DistillKind
from specrag.training.eagle import EagleLossSettings
from specrag.training.eagle_kind import EagleKind
from specrag.training.kind import HeadKind
from specrag.training.loop import TrainingSettings
from specrag.training.medusa_kind import MedusaKind
from specrag.training.optimizer import OptimizerSettings
from specrag.training.run import RunReport, RunSettings, run_training
from tests.training.kit import TOKENIZER, corpus, said, target

COUNT, LENGTH = 60, 16
LOSS = EagleLossSettings(2)
KINDS: dict[str, HeadKind] = {
    "eagle3": EagleKind(3, loss=LOSS),
    "eagle": EagleKind(2, loss=EagleLossSettings(2, state_weight=0.1)),
    "medusa": MedusaKind(2),
    "draft": DistillKind(2),
}
WISHES = {
    "greedy": SamplingParams(max_tokens=24),
    "sampled": SamplingParams(max_tokens=24, temperature=1.0, seed=3),
}


def settings(path: Path, epochs: float = 8, **options: Any) -> RunSettings:
    training = TrainingSettings(
        epochs=epochs,
        batch_tokens=200,
        optimizer=OptimizerSettings("muon", 0.05),
        evaluate_every=4,
    )
    usual = {"training": training, "vocabulary": 60, "features": path.parent / "states"}
    return RunSettings(DataSettings((path,), held_out=0.15), **{**usual, **options})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus(tmp_path_factory.mktemp("corpus") / "c.jsonl", COUNT, LENGTH)


@pytest.fixture(scope="module")
def ran(written: Path) -> Mapping[str, tuple[RunReport, Path]]:
    """Each kind, trained when it is first asked for."""

    class Ran(dict[str, tuple[RunReport, Path]]):
        def __missing__(self, name: str) -> tuple[RunReport, Path]:
            out = written.parent / name
            wanted = settings(written)
            # What the kinds read differs, and so do the features; one folder holds most.
            wanted = replace(wanted, features=written.parent / f"states-{name == 'eagle3'}")
            if name == "draft":  # begins near its end, so it goes in small steps
                slower = replace(wanted.training, optimizer=OptimizerSettings("muon", 0.01))
                wanted = replace(wanted, training=slower)
            self[name] = run_training(KINDS[name], wanted, target(), TOKENIZER, out), out
            return self[name]

    return Ran()


@cache
def plainly(wish: str) -> tuple[tuple[int, ...], ...]:
    return tuple(found.token_ids for found in answers("none", wish))


def answers(drafter: str, wish: str, branching: int = 1) -> list[Generation]:
    config = SpeculationConfig(policy="fixed", branching=branching, min_acceptance=0.0)
    generator = SpeculativeGenerator(target(), TOKENIZER, named_drafter(drafter), config)
    prompts = [
        TOKENIZER.encode_chat([{"role": "user", "content": text}])
        for text, _ in said(COUNT, LENGTH)[:5]
    ]
    return generator.generate_batch(prompts, WISHES[wish])


@pytest.mark.parametrize("name", KINDS)
def test_acceptance_on_held_out_text_rises(
    name: str, ran: Mapping[str, tuple[RunReport, Path]]
) -> None:
    report, _ = ran[name]
    first, last = report.history[0]["held_out"], report.history[-1]["held_out"]
    assert last["loss"] < first["loss"]
    # A few of the target's layers are right from the beginning, where the rest adds little.
    assert last["accepted_0"] > (0.85 if name == "draft" else first["accepted_0"] + 0.1)
    assert last["accepted_1"] <= last["accepted_0"]
    assert report.history[-1]["train"]["loss"] < report.history[0]["train"]["loss"]


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("name", KINDS)
def test_what_was_trained_drafts_and_changes_no_token(
    name: str,
    wish: str,
    ran: Mapping[str, tuple[RunReport, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECRAG_HOME", str(ran[name][1].parent / "home"))
    for branching in (1, 3):
        found = answers(f"{name}:{ran[name][1]}", wish, branching)
        assert tuple(answer.token_ids for answer in found) == plainly(wish)
        length = sum(a.stats.mean_acceptance_length for a in found) / len(found)
        assert length > (1.1 if name == "medusa" else 1.8)


@pytest.mark.parametrize("name", ["eagle3", "eagle", "medusa"])
def test_the_folder_is_a_head_that_can_be_read(
    name: str, ran: Mapping[str, tuple[RunReport, Path]]
) -> None:
    report, folder = ran[name]
    checkpoint = read_checkpoint(str(folder), target())
    assert checkpoint.family == name
    if name != "eagle":  # which reads the whole LM head
        assert checkpoint.draft_token_ids is not None
        assert len(checkpoint.draft_token_ids) == report.card["vocabulary"] == 60
        assert set(target().eos_token_ids) <= set(checkpoint.draft_token_ids.tolist())


def test_the_folder_is_a_draft_model_that_can_be_loaded(
    ran: Mapping[str, tuple[RunReport, Path]],
) -> None:
    loaded = load_slim(ran["draft"][1], target())
    assert loaded.vocab_size == target().vocab_size


def test_the_card_says_what_was_done(ran: Mapping[str, tuple[RunReport, Path]]) -> None:
    report, _ = ran["medusa"]
    card = report.card
    measured = card["data"].pop("held_out_texts")
    assert 0 < measured < COUNT
    expected = {
        "kind": "medusa",
        "target": target().name,
        "fingerprint": target().fingerprint,
        "vocabulary": 60,
        "seed": 0,
        "held_out": report.history[-1]["held_out"],
    }
    assert expected.items() <= card.items()
    steps, _, whole = card["steps"].partition(" of ")
    assert steps == whole == str(report.history[-1]["step"])
    assert card["data"]["files"] == ["c.jsonl"]
    assert card["data"]["texts"] == COUNT - measured
    tokens = sum(len(answer) for _, answer in said(COUNT, LENGTH))
    assert 0 < card["data"]["answer_tokens"] < tokens
    assert card["data"]["epochs"] == 8
    card["data"]["held_out_texts"] = measured
    assert json.loads(json.dumps(card))["kind"] == "medusa"  # it is written as JSON
    heads, ranks = len(card["accuracies"]), {len(row) for row in card["accuracies"]}
    assert heads == 2
    assert len(ranks) == 1


def test_only_what_is_trained_changes(ran: Mapping[str, tuple[RunReport, Path]]) -> None:
    for name in KINDS:
        assert ran[name]
    fresh = target.__wrapped__()
    for key, value in fresh.model.state_dict().items():
        assert torch.equal(value, target().model.state_dict()[key]), key


@pytest.mark.parametrize("name", KINDS)
def test_a_stopped_run_goes_on_to_the_same_files(name: str, written: Path, tmp_path: Path) -> None:
    wanted = settings(written, epochs=1.5, features=written.parent / f"states-{name == 'eagle3'}")
    whole = run_training(KINDS[name], wanted, target(), TOKENIZER, tmp_path / "a")
    parts = [
        run_training(KINDS[name], wanted, target(), TOKENIZER, tmp_path / "b", stop=lambda: True)
        for _ in range(3)
    ]
    assert parts[2].card["steps"].startswith("3 of ")
    last = run_training(KINDS[name], wanted, target(), TOKENIZER, tmp_path / "b")
    for path in (tmp_path / "a").glob("*.*"):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name
    assert len(list((tmp_path / "a").glob("*.*"))) >= 2
    cards = [{key: v for key, v in r.card.items() if key != "seconds"} for r in (whole, last)]
    assert cards[0] == cards[1]
    assert [row["held_out"] for row in whole.history] == [row["held_out"] for row in last.history]


def test_another_run_into_its_folder_is_refused(written: Path, tmp_path: Path) -> None:
    states = written.parent / "states-False"
    wanted = settings(written, epochs=1, features=states)
    run_training(KINDS["eagle"], wanted, target(), TOKENIZER, tmp_path, stop=lambda: True)
    others: list[tuple[HeadKind, RunSettings]] = [
        (EagleKind(2, loss=EagleLossSettings(3, state_weight=0.1)), wanted),
        (KINDS["medusa"], wanted),
        (KINDS["eagle"], replace(wanted, vocabulary=50)),
        (KINDS["eagle"], replace(wanted, data=replace(wanted.data, limit=10), features=None)),
    ]
    for kind, other in others:
        if other.features is None:
            other = replace(other, features=tmp_path / "other")
        with pytest.raises(ConfigError, match="holds a training"):
            run_training(kind, other, target(), TOKENIZER, tmp_path)


def test_features_are_kept_at_home_and_used_again(
    written: Path, isolated_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = settings(written, epochs=0.1, features=None)
    run_training(KINDS["eagle"], wanted, target(), TOKENIZER, tmp_path / "a")
    (kept,) = (home() / "features").iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in kept.iterdir()}
    run_training(KINDS["medusa"], wanted, target(), TOKENIZER, tmp_path / "b")
    assert before == {path.name: path.stat().st_mtime_ns for path in kept.iterdir()}
    run_training(KINDS["eagle3"], wanted, target(), TOKENIZER, tmp_path / "c")
    assert len(list((home() / "features").iterdir())) == 2  # it reads more of the target


@pytest.mark.parametrize("features", [None, "states"])
def test_a_file_that_cannot_be_read_is_named(
    features: str | None, tmp_path: Path, isolated_home: Path
) -> None:
    for path in (tmp_path / "no.jsonl", tmp_path):
        wanted = RunSettings(
            DataSettings((path,)), features=None if features is None else tmp_path / features
        )
        with pytest.raises(InputError, match=f"cannot read '{path}'"):
            run_training(KINDS["eagle"], wanted, target(), TOKENIZER, tmp_path / "out")


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_a_target_with_too_few_layers_is_refused(
    num_layers: int, written: Path, tmp_path: Path
) -> None:
    small = tiny_target(num_layers=num_layers)
    wanted = settings(written, features=tmp_path / "f")
    with pytest.raises(ConfigError, match=f"with 4 or more; tiny-0 has {num_layers}") as caught:
        run_training(EagleKind(3), wanted, small, TOKENIZER, tmp_path / "out")
    assert caught.value.hint == "train one of generation 2"
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"generation": 1}, "generation must be 2 or 3, got 1"),
        ({"generation": 4}, "generation must be 2 or 3, got 4"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
    ],
)
def test_kinds_that_are_none_are_refused(options: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EagleKind(**options)  # type: ignore[arg-type]


def test_a_vocabulary_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="vocabulary must be at least 1, got 0"):
        RunSettings(DataSettings((tmp_path,)), vocabulary=0)


@pytest.mark.parametrize("name", ["eagle3", "eagle", "medusa"])
def test_a_head_is_trained_further_from_where_it_was(
    name: str, ran: Mapping[str, tuple[RunReport, Path]], written: Path, tmp_path: Path
) -> None:
    first, folder = ran[name]
    known = KINDS[name]
    assert isinstance(known, EagleKind | MedusaKind)
    kind = replace(known, begin_from=str(folder))
    wanted = settings(written, 0.01, features=written.parent / f"states-{name == 'eagle3'}")
    still = replace(wanted.training, optimizer=OptimizerSettings("muon", 1e-9))
    # A vocabulary that is asked for does not count: the head has one.
    wanted = replace(wanted, training=still, vocabulary=7)
    report = run_training(kind, wanted, target(), TOKENIZER, tmp_path / "further")
    assert report.card["vocabulary"] == first.card["vocabulary"]
    for metric, value in first.history[-1]["held_out"].items():
        # Written in bfloat16 in between.
        assert report.history[-1]["held_out"][metric] == pytest.approx(value, abs=0.06), metric
    before, after = (
        read_checkpoint(str(place), target()) for place in (folder, tmp_path / "further")
    )
    assert before.tensors.keys() == after.tensors.keys()
    assert torch.equal(
        before.draft_token_ids if before.draft_token_ids is not None else torch.zeros(1),
        after.draft_token_ids if after.draft_token_ids is not None else torch.zeros(1),
    )


def test_a_head_of_another_family_is_no_beginning(
    ran: Mapping[str, tuple[RunReport, Path]], written: Path, tmp_path: Path
) -> None:
    kind = EagleKind(3, begin_from=str(ran["medusa"][1]))
    with pytest.raises(ConfigError, match="is of the family medusa, not eagle3"):
        run_training(kind, settings(written, 0.01), target(), TOKENIZER, tmp_path)


def test_a_packed_target_is_no_target_to_train_for(written: Path, tmp_path: Path) -> None:
    packed = LeanTarget(copy.deepcopy(target().model).float(), "packed", "float16")
    with pytest.raises(ConfigError, match="packed is packed as float16") as caught:
        run_training(KINDS["eagle3"], settings(written), packed, TOKENIZER, tmp_path / "out")
    assert "quantization none" in str(caught.value.hint)
    assert not (tmp_path / "out").exists()
