"""The heads that ship: found by the target's weights, or by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specrag.drafters import shipped as shipped_module
from specrag.drafters.checkpoints.writer import write_head
from specrag.drafters.named_head import NamedHead
from specrag.drafters.shipped import CARD, shipped_head, shipped_heads
from specrag.errors import ModelError
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.target import TargetModel
from specrag.models.tiny import tiny_target
from tests.drafters.checkpoints.kit import (
    TOKENIZER,
    cyclic_target,
    knowing_eagle3,
    knowing_medusa,
)
from tests.drafters.kit import context


def ship(folder: Path, kind: str, target: TargetModel, **fields: object) -> Path:
    place = folder / f"{target.name}-model" / kind
    place.mkdir(parents=True)
    card = {"kind": kind, "target": target.name, "fingerprint": target.fingerprint, **fields}
    (place / CARD).write_text(json.dumps(card), encoding="utf-8")
    return place


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    for kind in ("eagle3", "medusa"):
        ship(tmp_path, kind, tiny_target())
    ship(tmp_path, "eagle3", tiny_target(seed=1))
    return tmp_path


def test_every_card_is_a_head(shelf: Path) -> None:
    (shelf / "tiny-0-model" / "without-card").mkdir()
    found = list(shipped_heads(shelf))
    assert [(head.target, head.kind) for head in found] == [
        ("tiny-0", "eagle3"),
        ("tiny-0", "medusa"),
        ("tiny-1", "eagle3"),
    ]
    assert found[1].folder == shelf / "tiny-0-model" / "medusa"
    assert list(shipped_heads(shelf / "nowhere")) == []


def test_a_target_is_known_by_its_weights(shelf: Path) -> None:
    renamed = HuggingFaceTarget(tiny_target(seed=1).model, "my-copy")
    assert shipped_head("eagle3", renamed, shelf).folder == shelf / "tiny-1-model" / "eagle3"


@pytest.mark.parametrize(
    ("kind", "seed", "said"),
    [
        ("eagle3", 2, "no eagle3 head ships for tiny-2; there is one for tiny-0, tiny-1"),
        ("medusa", 1, "no medusa head ships for tiny-1; there is one for tiny-0"),
        ("eagle", 0, "no eagle head ships for tiny-0"),
    ],
)
def test_what_does_not_ship_is_said(shelf: Path, kind: str, seed: int, said: str) -> None:
    with pytest.raises(ModelError) as caught:
        shipped_head(kind, tiny_target(seed), shelf)
    assert caught.value.message == said
    assert caught.value.hint == (
        f"name a head: {kind}:FOLDER or {kind}:HUB-NAME, or train one: specrag train "
        + ("medusa" if kind == "medusa" else "eagle")
    )


def test_a_missing_draft_model_is_no_head(shelf: Path) -> None:
    with pytest.raises(ModelError) as caught:
        shipped_head("draft", tiny_target(), shelf)
    assert caught.value.message == "no draft model ships for tiny-0"
    assert caught.value.hint == (
        "name a model: draft:FOLDER or draft:HUB-NAME, or train one: specrag train distill"
    )


def test_shipped_heads_are_used_without_asking_the_target(
    tmp_path: Path, isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*args: object, **kwargs: object) -> None:
        pytest.fail("the target was asked")

    monkeypatch.setattr("specrag.drafters.named_head.probe", silent)
    monkeypatch.setattr(
        "specrag.drafters.named_head.shipped_head",
        lambda kind, target: shipped_module.shipped_head(kind, target, tmp_path),
    )
    shares = [[0.5, 0.1], [0.4, 0.1], [0.3, 0.1]]
    write_head(ship(tmp_path, "eagle3", cyclic_target()), knowing_eagle3())
    write_head(ship(tmp_path, "medusa", cyclic_target(), accuracies=shares), knowing_medusa())
    for kind in ("eagle3", "medusa"):
        named = NamedHead(kind)
        named.bind(cyclic_target(), TOKENIZER)
        assert named.name == kind
        named.open([context((5, 6))]).close()
        if kind == "medusa":
            assert named._inner._accuracies == shares  # type: ignore[union-attr]
    assert not isolated_home.exists()


def test_the_shelf_of_the_package_is_in_order() -> None:
    for head in shipped_heads():
        assert head.kind in ("eagle", "eagle3", "medusa", "draft")
        assert (head.folder / "config.json").is_file()
