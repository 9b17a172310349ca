"""Incremental text: each new token adds complete characters, and nothing is decoded twice."""

from __future__ import annotations

from specrag.models.tokenizer import Tokenizer

_INCOMPLETE = "\ufffd"


class Detokenizer:
    """Turns tokens into text as they come.

    Decodes a window of the last tokens and emits what it adds, because a token's text may depend
    on its left neighbour, and a character may be spread over several tokens (the window then ends
    in a replacement character and waits).

    Args:
        tokenizer: Decodes the tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._token_ids: list[int] = []
        self._start = 0  # first token of the window
        self._shown = 0  # tokens of the window whose text has been emitted end here

    def push(self, token_id: int) -> str:
        """Returns the text that a token completes, possibly empty.

        Args:
            token_id: The next token.
        """
        self._token_ids.append(token_id)
        before, after = self._window()
        if after.endswith(_INCOMPLETE) or len(after) <= len(before):
            return ""
        self._start, self._shown = self._shown, len(self._token_ids)
        return after[len(before) :]

    def flush(self) -> str:
        """Returns what is left: an incomplete character at the very end, as it decodes."""
        before, after = self._window()
        self._start = self._shown = len(self._token_ids)
        return after[len(before) :]

    def _window(self) -> tuple[str, str]:
        tokens = self._token_ids
        before = self._tokenizer.decode(tokens[self._start : self._shown])
        return before, self._tokenizer.decode(tokens[self._start :])
