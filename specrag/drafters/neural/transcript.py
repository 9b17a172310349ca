"""Transcript: the text of one row in the tokens of a draft model with another tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from specrag.drafters.neural.vocabulary import SharedVocabulary, special_texts, token_bytes
from specrag.models.tokenizer import Tokenizer

_MAX_WORD = 32
_SPACES = (b" ", b"\n", b"\t", b"\r")


class Translator:
    """Encodes the target's text anew for a draft model, word by word.

    Words are borders that no tokenizer's common tokens cross, so what follows changes nothing in
    the tokens of a word that has ended: a draft model's cache stays right up to the last word.

    Args:
        vocabulary: What both tokenizers have in common.
        tokenizer: The target's.
        model_tokenizer: The draft model's.
    """

    def __init__(
        self, vocabulary: SharedVocabulary, tokenizer: Tokenizer, model_tokenizer: Tokenizer
    ) -> None:
        self._vocabulary = vocabulary
        self._tokenizer = model_tokenizer
        self._bytes = token_bytes(tokenizer)
        self._marks = special_texts(tokenizer)
        self._draft_bytes = token_bytes(model_tokenizer)

    def text(self, token: int) -> bytes | None:
        """Returns the bytes of a target's token, None for a mark without text.

        Args:
            token: A token of the target.
        """
        return None if token in self._marks else self._bytes.get(token, b"")

    def mark(self, token: int) -> list[int]:
        """Returns the draft model's tokens for a mark: one of the same role, or its letters.

        Args:
            token: A special token of the target.
        """
        if self._vocabulary.has(token):
            return self._vocabulary.draft_ids([token])
        return self._tokenizer.encode(self._marks[token])

    def encode(self, text: bytes, *, first: bool) -> list[int]:
        """Returns the draft model's tokens for a word.

        Args:
            text: Complete characters.
            first: Whether it is the beginning of the whole text.
        """
        word = text.decode("utf-8", errors="replace")
        tokens = self._tokenizer.encode(word)
        if self._read(tokens) != b" " + text:
            return tokens
        # Some tokenizers put a space before any text that they are given.
        if word.startswith(" "):
            return self._tokenizer.encode(word[1:])
        before = self._tokenizer.encode("\n")
        with_before = self._tokenizer.encode("\n" + word)
        if first or with_before[: len(before)] != before:
            return tokens
        return with_before[len(before) :]

    def _read(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self._draft_bytes.get(token, b"") for token in tokens)


class Transcript:
    """The tokens that one row has said, and the same text in the draft model's tokens.

    Args:
        translator: Encodes it; None where both have the same tokens.
        vocabulary: What both have in common.
    """

    def __init__(self, translator: Translator | None, vocabulary: SharedVocabulary) -> None:
        self._translator = translator
        self._vocabulary = vocabulary
        self.token_ids: list[int] = []
        self._closed: list[int] = []  # the draft model's tokens of all words that have ended
        self._word = b""
        self._word_tokens = 0

    def append(self, token: int) -> None:
        """Adds a committed token.

        Args:
            token: A token of the target.
        """
        self.token_ids.append(token)
        if self._translator is None:
            self._closed += self._vocabulary.draft_ids([token])
            return
        text = self._translator.text(token)
        if text is None:
            self._close_word()
            self._closed += self._translator.mark(token)
            return
        starts = text.startswith(_SPACES) and not self._word.endswith(_SPACES)
        if starts or (self._word_tokens >= _MAX_WORD and _is_complete(self._word)):
            self._close_word()
        self._word += text
        self._word_tokens += 1

    def draft_ids(self) -> list[int] | None:
        """Returns the text in the draft model's tokens.

        Returns:
            None where it ends within a character, which the draft model cannot continue.
        """
        if not self._word:
            return list(self._closed)
        assert self._translator is not None, "only a translated text has words"
        if not _is_complete(self._word):
            return None
        first = not self._closed
        return self._closed + self._translator.encode(self._word, first=first)

    def after(self, ahead: Sequence[int]) -> Transcript:
        """Returns the transcript with further tokens; this one stays as it is.

        Args:
            ahead: Tokens of the target.
        """
        longer = Transcript(self._translator, self._vocabulary)
        longer.token_ids, longer._closed = list(self.token_ids), list(self._closed)
        longer._word, longer._word_tokens = self._word, self._word_tokens
        for token in ahead:
            longer.append(token)
        return longer

    def _close_word(self) -> None:
        if self._word and self._translator is not None:
            self._closed += self._translator.encode(self._word, first=not self._closed)
        self._word, self._word_tokens = b"", 0


def _is_complete(text: bytes) -> bool:
    """Whether bytes end with a whole character; bytes that are no text at all count as whole."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason != "unexpected end of data"
    return True
