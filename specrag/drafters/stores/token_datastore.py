"""TokenDatastore: finds the longest ending of a text that occurs in a corpus, and what followed.

Knows arrays, mostly memory-mapped ones, and nothing of files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specrag.drafters.stores.arrays import MAX_MATCH, DatastoreArrays


class Match(NamedTuple):
    """Where the longest known ending of a text occurs.

    Attributes:
        length: Its tokens; 0 when nothing matched.
        first: Place of its first occurrence among the sorted ones.
        last: Place after its last occurrence.
    """

    length: int
    first: int
    last: int

    @property
    def num_occurrences(self) -> int:
        """How often it occurs, each time followed by a token."""
        return self.last - self.first


NO_MATCH = Match(0, 0, 0)


class TokenDatastore:
    """Looks up endings of texts in a corpus, in a few bisections.

    The occurrences of any ending lie side by side among the sorted positions, so one bisection
    finds where the text itself belongs, its neighbours there share the longest ending with it,
    and two more find how far that ending goes. The table of pairs leaves little to bisect. As
    only positions that hold a token of the same text are sorted, whatever matches was continued,
    and no match runs from one text into another.

    The idea of a datastore is that of "REST" (He et al., 2023), which searches a suffix array
    once for each length of ending, the longest first.

    Args:
        arrays: The content.
        vocab_size: Number of different tokens.
    """

    def __init__(self, arrays: DatastoreArrays, vocab_size: int) -> None:
        # A memmap runs Python code for every slice; a plain view of it does not.
        self._tokens, self._suffixes, self._pairs, self._starts = (
            np.asarray(array) for _, array in arrays.items()
        )
        self.vocab_size = vocab_size

    def longest_match(self, text: Sequence[int], max_match: int = MAX_MATCH) -> Match:
        """Finds the longest ending of a text that occurs and is continued.

        Args:
            text: Token ids.
            max_match: Tokens of the longest ending looked for, from 1 to ``MAX_MATCH``.
        """
        wanted = self._backwards(text, max_match)
        if not wanted:
            return NO_MATCH
        low, high = self._with_pair(wanted)
        if low == high:
            low, high = self._with_token(wanted[0])
            return Match(1, low, high) if low < high else NO_MATCH
        here = self._bisect(wanted, low, high)
        near = [place for place in (here - 1, here) if low <= place < high]
        length = max(_num_common(self._before(place, len(wanted)), wanted) for place in near)
        if length == 2:
            return Match(length, low, high)
        ending = wanted[:length]
        # Greater than the separator, too, so this comes after all that has the ending.
        after = [*ending, self._separator + 1]
        return Match(length, self._bisect(ending, low, here), self._bisect(after, here, high))

    def continuations(self, match: Match, num_samples: int, depth: int) -> list[list[int]]:
        """Returns what followed the occurrences of a match, or a fair sample of them.

        Args:
            match: From ``longest_match``.
            num_samples: Most occurrences; of more, that many at even distances are taken.
            depth: Tokens after each, at least 1.

        Returns:
            For each occurrence the next tokens, at least one, up to the end of its text.
        """
        places = np.arange(match.first, match.last)
        if match.num_occurrences > num_samples:
            steps = np.arange(num_samples, dtype=np.int64) * 2 + 1
            places = match.first + steps * match.num_occurrences // (2 * num_samples)
        positions = self._suffixes[places].astype(np.int64)[:, None] + np.arange(depth)
        rows = self._tokens.take(positions, mode="clip")
        if (rows < self.vocab_size).all():
            return list(rows.tolist())
        ends = np.where(rows < self.vocab_size, depth, np.arange(depth)).min(axis=1)
        return [row[:end] for row, end in zip(rows.tolist(), ends.tolist(), strict=True)]

    @property
    def _separator(self) -> int:
        return int(np.iinfo(self._tokens.dtype).max)

    def _backwards(self, text: Sequence[int], max_match: int) -> list[int]:
        """Returns the last tokens of a text, the last one first, as far as they may occur."""
        ending = list(text[-max_match:])[::-1]
        known = (0 <= token < self.vocab_size for token in ending)
        return ending[: next((size for size, is_known in enumerate(known) if not is_known), None)]

    def _with_pair(self, wanted: list[int]) -> tuple[int, int]:
        if len(wanted) < 2:
            return 0, 0
        key = wanted[0] * (self.vocab_size + 1) + wanted[1]
        place = self._pair_place(key)
        if place == len(self._pairs) or self._pairs.item(place) != key:
            return 0, 0
        return self._starts.item(place), self._starts.item(place + 1)

    def _with_token(self, token: int) -> tuple[int, int]:
        first = self._pair_place(token * (self.vocab_size + 1))
        last = self._pair_place((token + 1) * (self.vocab_size + 1))
        return self._starts.item(first), self._starts.item(last)

    def _pair_place(self, key: int) -> int:
        # A key of another type would make numpy convert the whole table first.
        return int(self._pairs.searchsorted(self._pairs.dtype.type(key)))

    def _before(self, place: int, size: int) -> list[int]:
        """Returns the tokens before an occurrence, the nearest first."""
        position = self._suffixes.item(place)
        before: list[int] = self._tokens[max(0, position - size) : position].tolist()
        return before[::-1]

    def _bisect(self, wanted: list[int], low: int, high: int) -> int:
        """Returns the first place from ``low`` to ``high`` whose tokens before are not less."""
        size = len(wanted)
        places = range(len(self._suffixes))
        return bisect_left(places, wanted, low, high, key=lambda place: self._before(place, size))


def _num_common(left: list[int], right: list[int]) -> int:
    pairs = zip(left, right, strict=False)
    return next((size for size, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))
