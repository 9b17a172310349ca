"""Incremental text: the pieces joined are the text, and characters stay whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.decoders import ByteFallback, Fuse, Replace, Strip
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.decoders import Sequence as Decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

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


class Watched(Bytes):
    """Remembers how many tokens each call decoded."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(pieces)
        self.sizes: list[int] = []

    def decode(self, token_ids: Sequence[int]) -> str:
        self.sizes.append(len(token_ids))
        return super().decode(token_ids)


ENDLESS = {
    "stray bytes": [b"\xad"],
    "first bytes": [b"\xe4"],
    "half characters": [b"\xe4\xb8"],
    "half characters in two tokens": [b"\xe4", b"\xb8"],
    "characters over every border": [b"\xb8\xad\xe4"],
    "no bytes at all": [b""],
    "no bytes behind a first byte": [b"\xe4", *[b""] * 100],
    "no bytes behind a letter": [b"a", *[b""] * 100],
    "four first bytes of emoji": [b"\xf0", b"\xf0\x9f", b"\xf0\x9f\xa6"],
    "an emoji in bytes that lacks the last": [b"\xf0", b"\x9f", b"\xa6"],
    "replacement characters": ["\ufffd".encode()],
    "replacement characters in bytes": [b"\xef", b"\xbf", b"\xbd"],
}


@pytest.mark.parametrize("pieces", ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("end", [b"", b"\xb8\xad", b"\x9c", b"a", "\u4e2d".encode()])
def test_text_that_never_becomes_complete_is_decoded_in_short_windows(
    pieces: list[bytes], end: bytes
) -> None:
    tokenizer = Watched([*pieces, end])
    for count in range(92, 101):  # the window gives up at each place in turn
        endless = [i % len(pieces) for i in range(count)]
        token_ids = [*endless, len(pieces), 0, len(pieces)]
        tokenizer.sizes.clear()
        shown = pieces_of(tokenizer, token_ids)

        assert max(tokenizer.sizes) <= 24
        assert "".join(shown) == tokenizer.decode(token_ids)
        if any(pieces) and len(pieces) < 9:
            assert sum(map(bool, shown[:-4])) >= 10  # it is shown as it comes


@st.composite
def byte_level_runs(draw: st.DrawFn) -> list[bytes]:
    """Tokens of a byte-level vocabulary, mostly parts of characters."""
    part = st.sampled_from([b"\xe4", b"\xb8", b"\xad", b"\xf0\x9f", b"\xa6", b"", b"a", b"\xff"])
    other = st.binary(max_size=5)
    return draw(st.lists(st.one_of(part, other), max_size=60))


@given(byte_level_runs())
@settings(max_examples=500, deadline=None)
def test_any_bytes_come_out_as_they_decode_in_short_windows(pieces: list[bytes]) -> None:
    tokenizer = Watched(pieces)
    token_ids = range(len(pieces))
    shown = pieces_of(tokenizer, token_ids)
    longest = max(tokenizer.sizes, default=0)

    assert "".join(shown) == tokenizer.decode(token_ids)
    assert longest <= 24


def byte_level_tokenizer() -> Tokenizer:
    """A real byte-level BPE tokenizer: one token a byte, a few merges, a special token."""
    alphabet = sorted(ByteLevel.alphabet())
    words = {"<end>": 0} | {letter: i for i, letter in enumerate(alphabet, start=1)}
    pairs = [("\u00e4", "\u00b8"), ("\u0120", "\u00e4")]  # half a character, one behind a space
    words |= {a + b: len(words) + i for i, (a, b) in enumerate(pairs)}
    backend = RustTokenizer(BPE(words, pairs))
    backend.pre_tokenizer, backend.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>"))


BYTE_LEVEL = byte_level_tokenizer()


@given(st.lists(st.integers(0, 258), max_size=80))
@settings(max_examples=200, deadline=None)
def test_a_real_byte_level_tokenizer_may_say_anything(token_ids: list[int]) -> None:
    assert "".join(pieces_of(BYTE_LEVEL, token_ids)) == BYTE_LEVEL.decode(token_ids)


@given(st.text(max_size=20))
@settings(max_examples=100, deadline=None)
def test_a_real_byte_level_tokenizer_shows_whole_characters(text: str) -> None:
    token_ids = BYTE_LEVEL.encode(text)
    shown = pieces_of(BYTE_LEVEL, token_ids)

    assert "".join(shown) == text
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in shown)


def sentencepiece_tokenizer() -> Tokenizer:
    """Decodes as Llama 2 does: a space before each word but the first, bytes as a last resort."""
    words = ["<unk>", "<end>", "\u2581", "\u2581a", "b", *(f"<0x{i:02X}>" for i in range(256))]
    backend = RustTokenizer(
        BPE({word: i for i, word in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True)
    )
    backend.decoder = Decoders([Replace("\u2581", " "), ByteFallback(), Fuse(), Strip(" ", 1, 0)])
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>"))


SENTENCEPIECE = sentencepiece_tokenizer()


# A replacement character that was really written looks like an incomplete one.
_WRITTEN = st.characters(exclude_characters="\ufffd", codec="utf-8")


@given(st.lists(st.lists(st.integers(1, 4), max_size=6), max_size=8), st.text(_WRITTEN, max_size=3))
@settings(max_examples=200, deadline=None)
def test_spaces_and_special_tokens_come_out_where_they_belong(
    runs: list[list[int]], character: str
) -> None:
    between = [5 + byte for byte in character.encode("utf-8", errors="replace")]
    token_ids = [token for run in runs for token in (*run, *between)]

    assert "".join(pieces_of(SENTENCEPIECE, token_ids)) == SENTENCEPIECE.decode(token_ids)


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
