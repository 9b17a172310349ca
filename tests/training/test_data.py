from __future__ import annotations

from pathlib import Path

import pytest

from specrag.errors import InputError
from specrag.training.data import DataSettings, TrainingData
from tests.training.kit import TOKENIZER, corpus, said, target


def load(path: Path, tmp_path: Path, **options: object) -> TrainingData:
    settings = DataSettings((path,), **{"held_out": 0.3, **options})  # type: ignore[arg-type]
    return TrainingData.load(settings, target(), TOKENIZER, (-1,), tmp_path / "f")


def parts(data: TrainingData) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    found = [tuple(text.token_ids) for text in data.texts]
    return [found[place] for place in data.train], [found[place] for place in data.held_out]


def test_what_is_held_out_is_never_trained_on(tmp_path: Path) -> None:
    """Not even another answer to the same prompt."""
    path = corpus(tmp_path / "a.jsonl")
    with path.open("a", encoding="utf-8") as file:
        file.writelines(
            f'{{"prompt": "{prompt}", "response": "again"}}\n'
            for prompt, _ in said()
            if not set(prompt) & set("\"\\'")
        )
    data = load(path, tmp_path)
    train, measured = parts(data)
    assert len(train) + len(measured) == len(data.texts) > 40
    assert min(len(train), len(measured)) > 4
    starts = [
        {tuple(data.texts[place].token_ids[: data.texts[place].answer_start]) for place in places}
        for places in (data.train, data.held_out)
    ]
    assert not starts[0] & starts[1]


def test_a_smaller_training_sees_a_part_and_measures_the_same(tmp_path: Path) -> None:
    path = corpus(tmp_path / "a.jsonl")
    train, measured = parts(load(path, tmp_path))
    for limit in (1, 5):
        data = TrainingData.load(
            DataSettings((path,), held_out=0.3, limit=limit),
            target(),
            TOKENIZER,
            (-1,),
            tmp_path / str(limit),
        )
        some, judged = parts(data)
        assert some == train[:limit]
        assert judged == measured
    written = [(*TOKENIZER.encode_chat([{"role": "user", "content": p}]), *a) for p, a in said()]
    assert train != [text for text in written if text in train]  # drawn, not the first ones


def test_long_texts_are_cut_and_long_prompts_left_out(tmp_path: Path) -> None:
    data = load(corpus(tmp_path / "a.jsonl"), tmp_path, max_tokens=7)
    assert {len(text.token_ids) for text in data.texts} == {7}
    assert len(data.texts) < len(said())


@pytest.mark.parametrize(("share", "lost"), [(0.0, "held out"), (0.999, "to train on")])
def test_a_side_without_texts_is_refused(share: float, lost: str, tmp_path: Path) -> None:
    """A training could neither learn nor be judged, and would say so at its end at best."""
    with pytest.raises(InputError, match=f"no text is {lost}|nothing is left {lost}") as caught:
        load(corpus(tmp_path / "a.jsonl", 5), tmp_path, held_out=share)
    assert "5 texts" in str(caught.value)
