"""Prompt lookup: the answer goes on as it did the last time its newest tokens occurred."""

from __future__ import annotations

from collections.abc import Sequence

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext, Drafter
from specrag.decoding.tree import DraftTree
from specrag.drafters.rows import RowwiseSession
from specrag.errors import ConfigError


class PromptLookupDrafter(Drafter):
    """Copies what followed the most recent earlier occurrence of the last few tokens.

    The longest n-gram that has occurred wins. It is searched for in the passages, the prompt and
    the output; the output continues the prompt, any other text is on its own, and neither an
    n-gram nor its continuation runs from one text into another. A copy that reaches the end of
    the output goes on with the copied tokens themselves, so a loop is drafted as a loop.

    "Prompt Lookup Decoding" (Saxena, 2023), with a hash map of n-grams in place of its scan.

    Args:
        max_ngram: Tokens of the longest n-gram looked up.
        min_ngram: Tokens of the shortest. One is worth it where a pass over a few more tokens
            costs hardly more, as on a CPU; two or three drafts less and wastes less.
    """

    name = "prompt_lookup"

    def __init__(self, max_ngram: int = 3, min_ngram: int = 1) -> None:
        if not 1 <= min_ngram <= max_ngram:
            raise ConfigError(
                f"prompt_lookup needs 1 <= min_ngram <= max_ngram, got min_ngram={min_ngram} "
                f"and max_ngram={max_ngram}"
            )
        self._sizes = range(max_ngram, min_ngram - 1, -1)

    def open(self, contexts: Sequence[DraftContext]) -> RowwiseSession:
        """Indexes the passages and the prompt of each row.

        Args:
            contexts: One for each row.
        """
        return RowwiseSession(lambda context: _Row(context, self._sizes), contexts)


Text = list[int]
Followers = dict[tuple[int, ...], tuple[Text, int]]
"""N-gram to the text and the position of what followed it last."""


class _Row:
    """The n-grams of one row."""

    def __init__(self, context: DraftContext, sizes: range) -> None:
        self._sizes = sizes
        self._followers: Followers = {}
        self._text: Text = []
        # The prompt comes last: it is what the output continues.
        for text in (*context.passages, context.prompt_ids):
            self._text = []
            for token in text:
                self.append(token)

    def append(self, token: int) -> None:
        # An n-gram is entered once it has a follower, so the one at the end never finds itself.
        self._enter(self._followers, self._text, len(self._text))
        self._text.append(token)

    def propose_after(self, budget: DraftBudget, ahead: Sequence[int]) -> DraftTree:
        num_tokens = min(budget.num_speculative_tokens, budget.max_depth)
        if num_tokens < 1:
            return DraftTree()
        text = [*self._text, *ahead] if ahead else self._text
        assumed: Followers = {}
        for end in range(len(self._text), len(text)):
            self._enter(assumed, text, end)
        for size in self._sizes:
            # A slice of a text shorter than `size` is a shorter n-gram, which has its own turn.
            ngram = tuple(text[-size:])
            found = assumed.get(ngram) or self._followers.get(ngram)
            if found is not None:
                copied = self._copied(*found, text, num_tokens)
                return DraftTree.chain(copied, _confidences(size, len(copied)))
        return DraftTree()

    def _enter(self, followers: Followers, text: Text, end: int) -> None:
        for size in self._sizes:
            if size <= end:
                followers[tuple(text[end - size : end])] = text, end

    def _copied(self, source: Text, start: int, text: Text, num_tokens: int) -> Text:
        if source is not text and source is not self._text:
            return source[start : start + num_tokens]
        copied = text[start : start + num_tokens]
        period = len(text) - start
        while len(copied) < num_tokens:
            copied.append(copied[-period])
        return copied


def _confidences(matched: int, num_tokens: int) -> list[float]:
    """A single earlier occurrence of L tokens goes on alike with probability L / (L + 2).

    The same escape rule as the suffix drafter's; each copied token lengthens the match by one.
    """
    path = 1.0
    confidences = []
    for length in range(matched, matched + num_tokens):
        path *= length / (length + 2.0)
        confidences.append(path)
    return confidences
