"""Incremental text: each new token adds complete characters, and nothing is decoded twice."""

from __future__ import annotations

from specrag.models.tokenizer import Tokenizer

_INCOMPLETE = "\ufffd"

_MAX_PENDING = 8
"""Tokens that may wait for the rest of a character; UTF-8 has at most 4 bytes for one."""

_KEPT = 4
"""Tokens kept of those: at least 4 bytes, so that an incomplete character is among them whole."""


class Detokenizer:
    """Turns tokens into text as they come; the pieces joined are the text of all tokens.

    Decodes a window of the last tokens and emits what it adds, because a token's text may depend
    on its left neighbour, and a character may be spread over several tokens (the window then ends
    in a replacement character and waits). The window stays short whatever the tokens are.

    Args:
        tokenizer: Decodes the tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._text = ""  # of the window
        self._emitted = 0  # characters of it
        self._next_start = 0  # first token that the window needs once it has emitted all
        self._num_pending = 0

    def push(self, token_id: int) -> str:
        """Returns the text that a token completes, possibly empty.

        Args:
            token_id: The next token.
        """
        text = self._tokenizer.decode([*self._window, token_id])
        if text == self._text and self._is_skipped(token_id):
            return ""
        self._window.append(token_id)
        self._text = text
        if text.endswith(_INCOMPLETE):
            self._num_pending += 1
            return "" if self._num_pending < _MAX_PENDING else self._give_up()
        piece = text[self._emitted :]
        if piece:
            self._slide(self._next_start)
            self._emitted = len(self._text)
            self._next_start = len(self._window)
            self._num_pending = 0
        return piece

    def flush(self) -> str:
        """Returns what is left: an incomplete character at the very end, as it decodes."""
        rest = self._text[self._emitted :]
        self._emitted = len(self._text)
        return rest

    def _is_skipped(self, token_id: int) -> bool:
        """Whether decoding leaves a token out, as it does with special ones.

        Asked of the token twice, because a single space at the beginning is left out as well.
        """
        return self._tokenizer.decode([token_id, token_id]) == ""

    def _give_up(self) -> str:
        """Emits all that no further byte can change: all but the last replacement character.

        Of bytes that are no character, decoders replace each longest possible beginning of one,
        so all replacement characters before the last are there to stay.
        """
        piece = self._text[self._emitted : -1]
        self._slide(len(self._window) - _KEPT)
        self._emitted = len(self._text) - 1
        self._next_start = 0
        self._num_pending = 0
        return piece

    def _slide(self, start: int) -> None:
        self._window = self._window[start:]
        self._text = self._tokenizer.decode(self._window)
