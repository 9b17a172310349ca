from __future__ import annotations

import json
from pathlib import Path

import pytest

from specrag.errors import InputError
from specrag.training.card import read_card, write_card


def test_cards_are_written_whole_and_read_again(tmp_path: Path) -> None:
    write_card(tmp_path, {"kind": "eagle3", "steps": "3 of 4"})
    assert read_card(tmp_path) == {"kind": "eagle3", "steps": "3 of 4"}
    assert [path.name for path in tmp_path.iterdir()] == ["card.json"]


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), ("{", "Expecting"), ("[]", "no JSON object")]
)
def test_what_is_no_card_is_refused(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "card.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=said) as caught:
        read_card(tmp_path)
    assert "card.json" in str(caught.value)


def test_no_card_is_left_half_written(tmp_path: Path) -> None:
    write_card(tmp_path, {"kind": "eagle3"})
    with pytest.raises(TypeError):
        write_card(tmp_path, {"kind": object()})
    assert json.loads((tmp_path / "card.json").read_text())["kind"] == "eagle3"
