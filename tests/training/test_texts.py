from __future__ import annotations

import json
import logging
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import ConfigError, InputError
from specrag.models.tiny import tiny_tokenizer
from specrag.training.corpus_row import CorpusRow
from specrag.training.texts import TrainingText, held_out, read_texts

EOS = 0
TOKENIZER = tiny_tokenizer()
ROW = {
    "kind": "chat",
    "temperature": 0.7,
    "prompt": "why",
    "response_ids": [5, 6, 0],
    "finished": True,
}


def read(tmp_path: Path, *rows: object, **options: Any) -> list[TrainingText]:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return read_texts([path], TOKENIZER, **options)


def test_rows_of_all_kinds_become_chats_with_an_end(tmp_path: Path) -> None:
    turns = [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "de")]
    messages = [{"role": role, "content": content} for role, content in turns]
    found = read(
        tmp_path,
        ROW,
        {"prompt": "why", "response": "so"},
        {"messages": messages, "kind": "talk"},
    )
    texts = ["<u>why<a>", "<u>why<a>so<eos>", "<u>a<a>b<u>c<a>de<eos>"]
    ids = [TOKENIZER.encode(text) for text in texts]
    assert [list(text.token_ids) for text in found] == [[*ids[0], 5, 6, 0], ids[1], ids[2]]
    assert [text.num_answer_tokens for text in found] == [3, 3, 3]
    assert [text.kind for text in found] == ["chat", "text", "talk"]


def test_a_row_that_was_written_reads_back(tmp_path: Path) -> None:
    row = CorpusRow("own", 1.0, "wh\u00fd \u2028", (7, 0), True, 2**62)
    line = row.to_json()
    assert "\n" not in line
    assert CorpusRow.parse(json.loads(line), "here", 64) == row
    assert list(read(tmp_path, json.loads(line))[0].token_ids[-2:]) == [7, 0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"response_ids": []}, "response_ids must be a list of token ids, at least one"),
        ({"response_ids": "5"}, "response_ids must be a list"),
        ({"response_ids": [5, 64]}, "holds 64; the target has the tokens 0 to 63"),
        ({"response_ids": [5, -1]}, "holds -1"),
        ({"response_ids": [5, True]}, "holds True"),
        ({"response_ids": [5.0]}, "holds 5.0"),
        ({"temperature": -1}, "temperature must be a number of 0 or more, got -1"),
        ({"temperature": "0"}, "temperature must be"),
        ({"temperature": True}, "temperature must be"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"temperature": float("inf")}, "temperature must be"),
        ({"kind": ""}, "kind must be a text"),
        ({"prompt": " "}, "prompt must be a text, not blank"),
        ({"prompt": ["a"]}, "prompt must be a text"),
        ({"finished": 1}, "finished must be"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"temprature": 1}, "unknown field 'temprature'; did you mean 'temperature'"),
    ],
)
def test_every_field_is_checked(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read(tmp_path, ROW, {**ROW, **change})
    assert "line 2 of" in caught.value.message


@pytest.mark.parametrize("name", [name for name in ROW if name != "response_ids"])
def test_every_field_is_needed(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"line 1 of .* has no '{name}'"):
        read(tmp_path, {key: value for key, value in ROW.items() if key != name})


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "a"}, "has no answer, only prompt"),
        ({}, "has no answer, only nothing"),
        ({"prompt": "a", "response": ""}, "response must be a text"),
        ({"response": "a"}, "prompt must be a text"),
        ({"prompt": "a", "response": "b", "kid": "x"}, "did you mean 'kind'"),
        ({"messages": []}, "messages must be a list of two messages or more"),
        ({"messages": [{"role": "user", "content": "a"}] * 2}, "must be 'assistant', got 'user'"),
        ({"messages": ["a", "b"]}, "message 1: it must be an object"),
        ({"messages": [{"role": "user"}] * 2}, "message 1: content must be a text"),
        ({"messages": [{"role": "user", "content": "a", "name": 1}] * 2}, "unknown field 'name'"),
        ({"messages": [{"role": "user", "content": 1}] * 2}, "content must be a text"),
    ],
)
def test_a_row_of_text_is_checked(row: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read(tmp_path, row)


def test_long_answers_are_cut_and_long_prompts_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{**ROW, "prompt": "w" * length} for length in (1, 4, 5, 6, 9)]
    with caplog.at_level(logging.WARNING):
        found = read(tmp_path, *rows, max_tokens=8)
    assert [text.answer_start for text in found] == [3, 6, 7]
    assert [list(text.token_ids[text.answer_start :]) for text in found] == [[5, 6, 0], [5, 6], [5]]
    assert "2 texts left out" in caplog.text
    assert len(read(tmp_path, *rows)) == 5
    with pytest.raises(ConfigError, match="max_tokens must be 2 or more"):
        read(tmp_path, *rows, max_tokens=1)


def test_tokens_above_the_tokenizer_are_taken_when_the_target_has_them(tmp_path: Path) -> None:
    assert read(tmp_path, {**ROW, "response_ids": [70]}, vocab_size=128)[0].token_ids[-1] == 70


def test_nothing_to_train_on_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to train on in .*a.jsonl"):
        read(tmp_path)
    with pytest.raises(InputError, match="nothing to train on in no file"):
        read_texts([], TOKENIZER)


TEXTS = st.lists(
    st.builds(
        lambda prompt, answer: TrainingText(array("i", [*prompt, *answer]), len(prompt), "x"),
        st.lists(st.integers(0, 9), min_size=1, max_size=3),
        st.lists(st.integers(0, 9), min_size=1, max_size=3),
    ),
    max_size=40,
)
SHARES = st.floats(0.0, 0.99)


def prompts(texts: list[TrainingText]) -> set[tuple[int, ...]]:
    return {tuple(text.token_ids[: text.answer_start]) for text in texts}


@given(TEXTS, TEXTS, SHARES, SHARES, st.integers())
@settings(deadline=None, max_examples=100)
def test_a_prompt_stays_on_its_side(
    texts: list[TrainingText], added: list[TrainingText], one: float, two: float, seed: int
) -> None:
    train, held = held_out(texts, one, seed)
    assert sorted([*train, *held], key=id) == sorted(texts, key=id)
    assert not prompts(train) & prompts(held)
    # Files that are added, before or behind, move no text.
    more_train, more_held = held_out([*added, *texts, *added], one, seed)
    assert prompts(train) <= prompts(more_train)
    assert prompts(held) <= prompts(more_held)
    small, large = (prompts(held_out(texts, share, seed)[1]) for share in sorted((one, two)))
    assert small <= large


def test_the_share_is_about_what_was_asked_for_and_the_seed_counts() -> None:
    texts = [
        TrainingText(array("i", [a, b, 1]), 2, "x") for a in range(40) for b in range(a, a + 50)
    ]
    held = [prompts(held_out(texts, 0.1, seed)[1]) for seed in range(3)]
    assert all(140 <= len(one) <= 260 for one in held)
    assert len(held[0] & held[1]) < 60
    assert not held_out(texts, 0.0)[1]
    for share in (-0.1, 1.0):
        with pytest.raises(ConfigError, match="share"):
            held_out(texts, share)
