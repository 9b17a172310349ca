"""Heads by name: their family is checked, and how they are read is found out once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from specrag.decoding.budget import DraftBudget
from specrag.drafters import named_head
from specrag.drafters.checkpoints import probe as probe_module
from specrag.drafters.checkpoints.writer import write_head
from specrag.drafters.eagle import EagleDrafter
from specrag.drafters.heads.eagle import EagleHead
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.drafters.heads.medusa import MedusaHeads
from specrag.drafters.medusa import MedusaDrafter
from specrag.drafters.named_head import NamedHead
from specrag.drafters.shipped import CARD
from specrag.errors import ConfigError, ModelError
from specrag.models.huggingface import HuggingFaceTarget
from tests.drafters.checkpoints.kit import (
    FEATURES,
    TOKENIZER,
    authors_names,
    cyclic_target,
    eagle3_settings,
    knowing_eagle,
    knowing_eagle3,
    knowing_medusa,
    written,
)
from tests.drafters.kit import context

HEADS: dict[str, EagleHead | Eagle3Head | MedusaHeads] = {
    "eagle": knowing_eagle(),
    "eagle3": knowing_eagle3(),
    "medusa": knowing_medusa(),
}


@pytest.fixture
def folders(tmp_path: Path, isolated_home: Path) -> Path:
    for kind, head in HEADS.items():
        write_head(tmp_path / kind, head)
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The heads that the target was asked about."""
    names: list[str] = []
    probe = probe_module.probe

    def noted(target: object, tokenizer: object, checkpoint: object) -> object:
        names.append(checkpoint.name)  # type: ignore[attr-defined]
        return probe(target, tokenizer, checkpoint)  # type: ignore[arg-type]

    monkeypatch.setattr(named_head, "probe", noted)
    return names


def bound(kind: str, source: Path, target: HuggingFaceTarget | None = None) -> NamedHead:
    named = NamedHead(kind, str(source))
    named.bind(target or cyclic_target(), TOKENIZER)
    return named


@pytest.mark.parametrize("kind", HEADS)
def test_each_kind_becomes_its_drafter(folders: Path, kind: str) -> None:
    named = bound(kind, folders / kind)
    assert named.name == f"{kind}:{folders / kind}"
    assert isinstance(named._inner, MedusaDrafter if kind == "medusa" else EagleDrafter)
    assert named._inner.name == named.name
    assert named.feature_layers == HEADS[kind].feature_layers
    assert (named.levels, named.device) == (named._inner.levels, "cpu")
    session = named.open([context((5, 6))])
    assert len(session.propose([0], [DraftBudget(4, 2, 1)])[0]) == 0  # nothing said yet


@pytest.mark.parametrize(
    ("kind", "other"), [("eagle", "eagle3"), ("eagle3", "medusa"), ("medusa", "eagle")]
)
def test_a_head_of_another_family_is_named(folders: Path, kind: str, other: str) -> None:
    with pytest.raises(ConfigError) as caught:
        bound(kind, folders / other)
    place = folders / other
    assert caught.value.message == f"the head {str(place)!r} is of the family {other}, not {kind}"
    assert caught.value.hint == f"write {other}:{place}"


def test_what_the_target_was_asked_is_kept(
    folders: Path, isolated_home: Path, asked: list[str]
) -> None:
    first = bound("eagle3", folders / "eagle3")
    (kept,) = isolated_home.rglob("*.json")
    again = bound("eagle3", folders / "eagle3")
    assert len(asked) == 1
    heads = [named._inner._head for named in (first, again)]  # type: ignore[union-attr]
    assert heads[0].config == heads[1].config
    for mine, wanted in zip(heads[0].parameters(), heads[1].parameters(), strict=True):
        assert torch.equal(mine, wanted)
    assert list(isolated_home.rglob("*.json")) == [kept]


def test_a_wrong_reading_is_mended_from_the_kept_file_too(folders: Path, asked: list[str]) -> None:
    settings = eagle3_settings(norm_before_residual=True)
    odd = written(folders / "odd", authors_names(knowing_eagle3().state_dict()), settings)
    for _ in range(2):
        head = bound("eagle3", odd)._inner._head  # type: ignore[union-attr]
        assert head.config == knowing_eagle3().config
    assert len(asked) == 1


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "3", "{}", '{"config": 3}', '{"config": "{}"}', '{"config": null}', "\udcff"],
)
def test_a_kept_file_that_is_damaged_counts_for_nothing(
    folders: Path, isolated_home: Path, asked: list[str], content: str
) -> None:
    bound("medusa", folders / "medusa")
    (kept,) = isolated_home.rglob("*.json")
    right = kept.read_text(encoding="utf-8")
    kept.write_bytes(content.encode("utf-8", "surrogateescape"))
    bound("medusa", folders / "medusa")
    assert len(asked) == 2
    assert kept.read_text(encoding="utf-8") == right


def test_other_weights_and_other_targets_are_asked_anew(
    folders: Path, isolated_home: Path, asked: list[str]
) -> None:
    bound("medusa", folders / "medusa")
    changed = HuggingFaceTarget(cyclic_target().model, "renamed")
    bound("medusa", folders / "medusa", changed)
    assert len(asked) == 1  # the same weights under another name

    write_head(folders / "medusa", knowing_medusa(2))
    bound("medusa", folders / "medusa")
    assert len(asked) == 2
    assert len(list(isolated_home.rglob("*.json"))) == 2


def test_a_home_that_cannot_be_written_to_does_no_harm(
    folders: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folders / "file").write_text("")
    monkeypatch.setenv("SPECRAG_HOME", str(folders / "file" / "home"))
    for count in (1, 2):
        bound("medusa", folders / "medusa")
        assert len(asked) == count


def test_a_head_that_does_not_agree_is_refused_and_not_kept(
    folders: Path, isolated_home: Path
) -> None:
    tensors = authors_names(knowing_eagle3().state_dict())
    tensors["lm_head.weight"] = tensors["lm_head.weight"].roll(1, 0)
    broken = written(folders / "broken", tensors, eagle3_settings())
    named = NamedHead("eagle3", str(broken))
    for _ in range(2):
        with pytest.raises(ModelError, match="does not agree with the target 'cyclic'"):
            named.bind(cyclic_target(), TOKENIZER)
    with pytest.raises(AssertionError, match="must be bound"):
        named.open([])
    assert not list(isolated_home.rglob("*.json"))


def test_binding_again_reads_nothing_and_another_target_all_anew(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = bound("eagle", folders / "eagle")
    inner, other = named._inner, HuggingFaceTarget(cyclic_target().model, "other")
    named.bind(other, TOKENIZER)
    assert named._inner is not inner
    assert named._inner is not None
    assert named._inner._embed is other.model.get_input_embeddings()  # type: ignore[attr-defined]
    inner = named._inner
    monkeypatch.setattr(named_head, "read_checkpoint", lambda *_: pytest.fail("was read"))
    named.bind(other, TOKENIZER)
    assert named._inner is inner


@pytest.mark.parametrize("card", ["{", "[]", "{}", '{"accuracies": null}'])
def test_a_card_that_tells_no_accuracies_is_left_out(folders: Path, card: str) -> None:
    (folders / "medusa" / CARD).write_text(card, encoding="utf-8")
    named = bound("medusa", folders / "medusa")
    assert named._inner._accuracies is None  # type: ignore[union-attr]


def test_a_single_file_is_a_head_too(folders: Path) -> None:
    named = bound("medusa", folders / "medusa" / "model.safetensors")
    assert isinstance(named._inner, MedusaDrafter)


def test_a_head_that_is_not_there(folders: Path) -> None:
    with pytest.raises(ModelError):
        bound("eagle3", folders / "nowhere")


def test_kept_readings_are_plain_json(folders: Path, isolated_home: Path) -> None:
    bound("eagle3", folders / "eagle3")
    (kept,) = isolated_home.rglob("*.json")
    content = json.loads(kept.read_text(encoding="utf-8"))
    assert json.loads(content["config"])["feature_layers"] == list(FEATURES)


@pytest.mark.parametrize("source", ["./missing", "/nowhere/at/all", "no-slash"])
def test_a_path_that_is_not_there_is_refused_before_any_target_is_loaded(source: str) -> None:
    with pytest.raises(ModelError, match="no draft head at"):
        NamedHead("eagle3", source)
