from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import InputError
from specrag.training.prompts import (
    TrainingPrompt,
    choose,
    normalised,
    read_excluded,
    read_prompts,
)


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_prompts_stand_in_the_fields_of_public_sets(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "mixed.part1.jsonl",
        {"prompt": " a "},
        {"question": "b", "answer": "x"},
        {"turns": ["c", "d"], "category": "writing"},
        {"text": "e", "title": "x", "kind": "passage"},
        {"instruction": "f", "kind": 7},
        {"input": "g"},
    )
    text = tmp_path / "mine.txt"
    text.write_text("one\n\n  two \n", encoding="utf-8")
    assert read_prompts([path, text]) == [
        TrainingPrompt("a", "mixed"),
        TrainingPrompt("b", "mixed"),
        TrainingPrompt("c", "writing"),
        TrainingPrompt("e", "passage"),
        TrainingPrompt("f", "mixed"),
        TrainingPrompt("g", "mixed"),
        TrainingPrompt("one", "mine"),
        TrainingPrompt("two", "mine"),
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"title": "x"}, "line 1 of .* has no prompt, only title"),
        ({}, "has no prompt, only nothing"),
        ({"prompt": "  "}, "prompt must be a text, not blank, got '  '"),
        ({"question": 3}, "question must be a text"),
        ({"turns": "a"}, "turns must be a list of texts"),
        ({"turns": []}, "turns must be a list of texts"),
        ({"turns": ["a", None]}, "turns must be a list of texts"),
    ],
)
def test_a_row_without_a_prompt_is_named(row: object, said: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", row)
    for read in (read_prompts, read_excluded):
        with pytest.raises(InputError, match=said):
            read([path])


def test_a_file_without_prompts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n \n", encoding="utf-8")
    with pytest.raises(InputError, match="has no prompts"):
        read_prompts([path])
    with pytest.raises(InputError, match="excludes no further prompt"):
        read_excluded([path])


def test_later_turns_are_excluded_too(tmp_path: Path) -> None:
    path = lines(tmp_path / "bench.jsonl", {"turns": ["What  is\nit?", "And THAT?"]})
    assert read_excluded([path]) == {"what is it?", "and that?"}


@given(st.lists(st.sampled_from(["a", "A ", "b", " b", "c c", "C\tc", "d"])), st.data())
@settings(deadline=None, max_examples=60)
def test_nothing_excluded_or_repeated_is_left(texts: list[str], data: st.DataObject) -> None:
    excluded = {normalised(text) for text in data.draw(st.lists(st.sampled_from("abd")))}
    choice = choose([TrainingPrompt(text, "x") for text in texts], excluded)
    left = [normalised(prompt.text) for prompt in choice.prompts]
    wanted = dict.fromkeys(key for key in map(normalised, texts) if key not in excluded)
    assert left == list(wanted)  # the first of each, in their order
    assert choice.num_excluded == sum(normalised(text) in excluded for text in texts)
    assert len(left) + choice.num_excluded + choice.num_repeated == len(texts)
