"""Incremental text: the pieces joined are the text, and characters stay whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.detokenizer import Detokenizer
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.stopping import StopChecker
from specrag.models.embedded import resolve
from specrag.models.tokenizer import Tokenizer

TEXTS = {
    "ascii": "Plain words, then 12 numbers.",
    "chinese": "草稿模型先猜词,龘靐齉爩。",
    "emoji": "🙂🦜👨‍👩‍👧🇩🇪 done",
    "mixed": "if x:\n\treturn '猜' + \"🙂\"  # naïve ∑",
}


class Bytes(Tokenizer):
    """Token ``i`` stands for some bytes, as in a byte-level vocabulary."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(None)
        self._pieces = pieces

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(self._pieces[i] for i in token_ids).decode("utf-8", errors="replace")


class Spaced(Tokenizer):
    """Words with a space before each but the first, as sentencepiece decodes them."""

    def __init__(self) -> None:
        super().__init__(None)

    def decode(self, token_ids: Sequence[int]) -> str:
        return " ".join(f"w{token}" for token in token_ids)


def pieces_of(tokenizer: Tokenizer, token_ids: Sequence[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.push(token) for token in token_ids), detokenizer.flush()]


@st.composite
def cut_texts(draw: st.DrawFn) -> list[bytes]:
    rest = draw(st.one_of(st.text(max_size=12).map(str.encode), st.binary(max_size=12)))
    cut: list[bytes] = []
    while rest:
        size = draw(st.integers(0, 3))
        cut.append(rest[:size])
        rest = rest[size:]
        if len(cut) > 40:
            return [*cut, rest]
    return cut


@given(cut_texts())
@settings(max_examples=300)
def test_the_pieces_joined_are_the_text_however_it_is_cut(pieces: list[bytes]) -> None:
    tokenizer = Bytes(pieces)
    token_ids = range(len(pieces))

    assert "".join(pieces_of(tokenizer, token_ids)) == tokenizer.decode(token_ids)


@given(st.text(st.characters(exclude_characters="\ufffd", exclude_categories=["Cs"]), max_size=12))
def test_no_piece_shows_half_a_character(text: str) -> None:
    pieces = [bytes([byte]) for byte in text.encode()]
    shown = pieces_of(Bytes(pieces), range(len(pieces)))

    assert "".join(shown) == text
    assert not any("\ufffd" in piece for piece in shown)
    # Each character comes with its last byte, none waits for the next.
    assert shown[-1] == ""


def test_a_half_character_at_the_end_comes_out_as_it_decodes() -> None:
    detokenizer = Detokenizer(Bytes([b"a", "中".encode()[:2]]))

    assert [detokenizer.push(0), detokenizer.push(1)] == ["a", ""]
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""


def test_what_is_left_at_the_end_is_searched_for_stop_strings_too() -> None:
    params = SamplingParams(stop=("\ufffd",), max_tokens=2)
    checker = StopChecker(params, (), Detokenizer(Bytes([b"a", "中".encode()[:2]])), room=9)

    assert checker.push([0, 1]) == (2, "a")
    assert checker.finish_reason == "stop"


def test_text_that_depends_on_the_left_neighbour_comes_out_right() -> None:
    assert pieces_of(Spaced(), [5, 6, 7]) == ["w5", " w6", " w7", ""]


def test_only_the_last_tokens_are_decoded_again() -> None:
    sizes: list[int] = []

    class Watched(Bytes):
        def decode(self, token_ids: Sequence[int]) -> str:
            sizes.append(len(token_ids))
            return super().decode(token_ids)

    pieces_of(Watched([b"a"] * 200), range(200))
    assert max(sizes) <= 3


@pytest.fixture(scope="session")
def embedded(embedded_target_path: Path) -> Tokenizer:
    return Tokenizer.load(resolve(str(embedded_target_path)))


@pytest.mark.embedded
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_embedded_tokenizer_streams_whole_characters(embedded: Tokenizer, text: str) -> None:
    token_ids = embedded.encode(text)
    shown = pieces_of(embedded, token_ids)

    assert "".join(shown) == embedded.decode(token_ids) == text
    assert not any("\ufffd" in piece for piece in shown)
    if not text.isascii():  # otherwise the test would show nothing
        assert any("\ufffd" in embedded.decode([token]) for token in token_ids)


@pytest.mark.embedded
def test_a_stop_string_of_split_characters_is_found(embedded: Tokenizer) -> None:
    token_ids = embedded.encode("先猜🦜龘后")
    params = SamplingParams(stop=("🦜龘",))
    checker = StopChecker(params, (), Detokenizer(embedded), room=100)
    shown = "".join(checker.push([token])[1] for token in token_ids if not checker.finish_reason)

    assert (shown, checker.finish_reason) == ("先猜", "stop")
