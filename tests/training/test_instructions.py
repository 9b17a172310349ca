from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specrag.decoding.generator import Generation, SpeculativeGenerator
from specrag.drafters.none import NoDrafter
from specrag.errors import ConfigError, InputError
from specrag.models.tiny import tiny_target, tiny_tokenizer
from specrag.training.block_file import BlockFile
from specrag.training.chat_turns import ChatTurns, special_token_ids
from specrag.training.corpus_settings import CorpusSettings
from specrag.training.full_batches import decode_all
from specrag.training.instructions import own_instructions, problem_of
from specrag.training.prompts import normalised

SETTINGS = CorpusSettings(num_own=6, batch_size=2, max_own_tokens=40, seed=5)


def generator(seed: int = 3, peakedness: float = 1.0) -> SpeculativeGenerator:
    return SpeculativeGenerator(
        tiny_target(seed, peakedness=peakedness), tiny_tokenizer(), NoDrafter()
    )


def sampled(
    path: Path,
    excluded: frozenset[str] = frozenset(),
    settings: CorpusSettings = SETTINGS,
    by: SpeculativeGenerator | None = None,
) -> tuple[list[str], int]:
    file = BlockFile(path, settings.block_rows)
    found, attempts = own_instructions(
        by or generator(), settings, file, excluded, lambda tokens, rows: None
    )
    assert all(prompt.kind == "own" for prompt in found)
    return [prompt.text for prompt in found], attempts


def test_each_instruction_ended_with_the_end_of_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Generation] = []

    def spied(*args: Any) -> list[Generation]:
        said.extend(found := decode_all(*args))
        return found

    monkeypatch.setattr("specrag.training.instructions.decode_all", spied)
    texts, attempts = sampled(tmp_path / "own")
    assert len(texts) == 6
    assert attempts == len(said) > 6
    tokenizer = tiny_tokenizer()
    user_end = tokenizer.encode("<a>")[0]
    ended = {one.text.strip() for one in said if one.token_ids[-1] == user_end}
    assert set(texts) <= ended
    # The model's own end token ends a row too, but not a user's message.
    others = {one.text.strip() for one in said if one.token_ids[-1] != user_end}
    assert any(one.token_ids[-1] == tokenizer.eos_token_id for one in said)
    assert not set(texts) & (others - ended)
    marks = special_token_ids(tokenizer)
    assert not any(marks & set(tokenizer.encode(text)) for text in texts)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], int]:
    """All attempts of a run that was not disturbed, and what it found."""
    path = tmp_path_factory.mktemp("whole") / "own"
    return (path, *sampled(path))


@pytest.mark.parametrize("kept", [SETTINGS.block_rows + 3, 10_000])
def test_a_later_run_reads_what_is_there_and_adds_what_is_missing(
    kept: int, whole: tuple[Path, list[str], int], tmp_path: Path
) -> None:
    lines = whole[0].read_bytes().splitlines(keepends=True)
    (tmp_path / "cut").write_bytes(b"".join(lines[:kept]) + b'{"text"')
    assert sampled(tmp_path / "cut") == whole[1:]
    assert (tmp_path / "cut").read_bytes().splitlines(keepends=True) == lines


def test_excluded_and_repeated_ones_are_passed_over(
    whole: tuple[Path, list[str], int], tmp_path: Path
) -> None:
    path, first, _ = whole
    excluded = frozenset(map(normalised, first[:3]))
    shutil.copy(path, tmp_path / "a")
    texts, _ = sampled(tmp_path / "a", excluded)
    assert not excluded & set(map(normalised, texts))
    assert texts[:3] == first[3:]
    (tmp_path / "twice").write_bytes(path.read_bytes() * 2)
    texts, _ = sampled(tmp_path / "twice", settings=replace(SETTINGS, num_own=7))
    assert texts[:6] == first
    assert len(set(texts)) == len(texts)


def test_where_no_token_ends_a_turn_a_text_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = ChatTurns(user_prefix=(2,), user_end=None, user_end_text="a", answer_end=None)
    monkeypatch.setattr("specrag.training.instructions.chat_turns", lambda tokenizer: turns)
    texts, _ = sampled(tmp_path / "own", settings=replace(SETTINGS, num_own=2))
    assert len(texts) == 2
    assert not any("a" in text for text in texts)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("why is it", ""),
        ("abc", "short"),
        ("aaaaabc", "repeats itself"),
        ("aaaabcde", ""),
        ("why<a>so it", "no text"),
        ("why \ufffd is it", "no text"),
        ("", "short"),
    ],
)
def test_what_cannot_be_used_has_a_reason(text: str, problem: str) -> None:
    tokenizer = tiny_tokenizer()
    assert problem_of(tokenizer, tokenizer.encode(text), text) == problem


def test_nothing_usable_is_an_error_and_so_is_a_format_without_turns(tmp_path: Path) -> None:
    short = CorpusSettings(num_own=1, batch_size=1, max_own_tokens=2)
    with pytest.raises(InputError, match="none of 8 attempts"):
        sampled(tmp_path / "a", settings=short)
    problems = {json.loads(line)["problem"] for line in (tmp_path / "a").read_text().splitlines()}
    assert problems <= {"does not end", "short"}
    by = generator()
    by.tokenizer.backend.chat_template = "{% for m in messages %}{{ m['content'] }}<a>{% endfor %}"
    with pytest.raises(ConfigError, match="before a user's message"):
        sampled(tmp_path / "b", by=by)


def test_a_foreign_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"prompt": "x"}\n' * 16, encoding="utf-8")
    with pytest.raises(InputError, match="line 1 of .* is no instruction"):
        sampled(tmp_path / "a")
