"""DatastoreArrays: texts as sorted arrays of tokens, the content of a datastore in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from specrag.drafters.stores.suffix_array import Array, pair_keys, sort_by_context
from specrag.errors import InputError

MAX_MATCH = 32
"""Tokens by which occurrences are sorted, and so those of the longest match."""


@dataclass(frozen=True, slots=True)
class DatastoreArrays:
    """The content of a datastore; each array is one file of it.

    Attributes:
        tokens: The texts one after another, a separator before and after each.
        suffixes: Each position that follows another token of its text, sorted by the tokens
            before it, read backwards.
        pairs: The different pairs of tokens before these positions, packed, rising.
        starts: The place in ``suffixes`` where each pair starts, and the place after the last.
    """

    tokens: Array
    suffixes: Array
    pairs: Array
    starts: Array

    @classmethod
    def build(
        cls, texts: Iterable[Sequence[int]], vocab_size: int, *, progress: bool = False
    ) -> DatastoreArrays:
        """Sorts the positions of all texts.

        Args:
            texts: Token ids of each text.
            vocab_size: Number of different tokens; ids are below it.
            progress: Whether to show a progress bar on standard error.

        Raises:
            InputError: A token is outside the vocabulary, or no text has two tokens.
        """
        tokens = _join(texts, vocab_size)
        # The separator is the greatest value of its type in the file, but packed it is the next
        # after the vocabulary, so that the pairs of most vocabularies fit 32 bits.
        plain = np.minimum(tokens, vocab_size)
        keys = pair_keys(plain, vocab_size)
        order = sort_by_context(keys, MAX_MATCH, progress=progress)
        order = order[(plain[order] < vocab_size) & (plain[order - 1] < vocab_size)]
        if not len(order):
            raise InputError(
                f"no text has two tokens or more; the texts have {int((plain < vocab_size).sum())} "
                "in all",
                hint="give more text",
            )
        keys = keys[order]
        firsts = np.flatnonzero(np.diff(keys, prepend=keys[0] + np.uint64(1)))
        places = _smallest_type(len(tokens))
        return cls(
            tokens,
            order.astype(places),
            keys[firsts].astype(_smallest_type((vocab_size + 1) ** 2)),
            np.append(firsts, len(order)).astype(places),
        )

    @property
    def num_texts(self) -> int:
        """Number of texts, empty ones included."""
        return int((self.tokens == np.iinfo(self.tokens.dtype).max).sum()) - 1

    @property
    def num_tokens(self) -> int:
        """Tokens of all texts, without the separators."""
        return len(self.tokens) - self.num_texts - 1

    def items(self) -> list[tuple[str, Array]]:
        """Returns the arrays by name."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


def _join(texts: Iterable[Sequence[int]], vocab_size: int) -> Array:
    kind = _smallest_type(vocab_size + 1, np.uint16)
    separator: Array = np.array([np.iinfo(kind).max], dtype=kind)
    parts = [separator]
    for number, text in enumerate(texts):
        ids = np.asarray(text, dtype=np.int64)
        if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
            raise InputError(
                f"text {number} has the tokens {ids.min()} to {ids.max()}; the vocabulary has "
                f"those from 0 to {vocab_size - 1}",
                hint="use the tokenizer that the vocabulary belongs to",
            )
        parts += [ids.astype(kind), separator]
    return np.concatenate(parts)


def _smallest_type(num_values: int, *smaller: type) -> type:
    """Returns the smallest allowed integer type with that many values."""
    kinds = (*smaller, np.uint32, np.uint64)
    return next(kind for kind in kinds if num_values - 1 <= np.iinfo(kind).max)
