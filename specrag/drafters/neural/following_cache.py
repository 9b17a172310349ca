"""FollowingCache: a draft model's key/value cache, kept in step with texts that others decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specrag.drafters.neural.row_cache import RowCache
from specrag.models.target import ModelOutput, TargetModel, TreePass

_LONG = 16
"""More missing tokens than this are prefilled, which computes no logits of theirs."""


class FollowingCache:
    """Holds the beginning of each row's text, and computes only what is new of it.

    What was drafted stays in the cache; when the text has gone on, the longest beginning that
    both share is kept and the rest rolled back. So an accepted draft is not computed again, and
    nothing has to be undone after a proposal.

    Args:
        model: The draft model.
    """

    def __init__(self, model: TargetModel) -> None:
        self._model = model
        self._cache = RowCache(model.new_cache)
        self._held: dict[int, list[int]] = {}

    @property
    def rows(self) -> list[int]:
        """The rows of the batch, in the order of the cache."""
        return self._cache.rows

    def follow(self, texts: Mapping[int, Sequence[int]]) -> list[list[int]]:
        """Brings the cache to the end of these texts, except for a few last tokens.

        Args:
            texts: Row to the draft model's tokens of its text, at least one; these rows, and no
                others, are then the batch, in the order of ``rows``.

        Returns:
            The last tokens of each row in that order, at least one, for the next pass to begin
            with.
        """
        self._cache.arrange(list(texts))
        for row in self.rows:
            self._held.setdefault(row, [])
        missing = [self._keep_common(row, texts[row]) for row in self.rows]
        self._cache.batch.rollback([len(self._held[row]) for row in self.rows])
        if max(map(len, missing)) > _LONG:
            self._prefill(missing)
            missing = [tokens[-1:] for tokens in missing]
        return missing

    def forward(self, tree_pass: TreePass) -> ModelOutput:
        """Runs the draft model over nodes, which stay pending.

        Args:
            tree_pass: One tree for each row of the batch.
        """
        return self._model.forward(tree_pass, self._cache.batch)

    def commit(self, paths: Sequence[Sequence[int]], tokens: Sequence[Sequence[int]]) -> None:
        """Keeps pending nodes.

        Args:
            paths: For each row of the batch the nodes to keep, top down.
            tokens: The draft model's token of each of them.
        """
        self._cache.batch.commit(paths)
        for row, path, kept in zip(self.rows, paths, tokens, strict=True):
            assert len(path) == len(kept), f"row {row} keeps {len(path)} nodes, {len(kept)} tokens"
            self._held[row] += kept

    def reset(self) -> None:
        """Forgets everything, such as after an error half way; it is computed again when asked."""
        self._cache.reset()
        self._held = {}

    def lengths(self) -> dict[int, int]:
        """Returns how many tokens of each row are held, after checking that all is in order.

        Raises:
            AssertionError: The cache is not in step.
        """
        held = {row: len(tokens) for row, tokens in self._held.items()}
        expected = {row: length for row, length in held.items() if length}
        found = {row: length for row, length in self._cache.lengths().items() if length}
        assert found == expected, f"{found} is not {expected}"
        return held

    def _keep_common(self, row: int, text: Sequence[int]) -> list[int]:
        """Shortens what is held to the common beginning, and returns the rest of the text."""
        held = self._held[row]
        # The last token is always computed: what follows it is what is asked.
        shared = min(len(held), len(text) - 1)
        if held[:shared] != list(text[:shared]):
            shared = next(i for i in range(shared) if held[i] != text[i])
        del held[shared:]
        return list(text[shared:])

    def _prefill(self, missing: Sequence[Sequence[int]]) -> None:
        # A row that lacks no more than its last token takes that one, and gives it back.
        self._model.prefill([tokens[:-1] or tokens for tokens in missing], self._cache.batch)
        for row, tokens in zip(self.rows, missing, strict=True):
            self._held[row] += tokens[:-1]
        self._cache.batch.rollback([len(self._held[row]) for row in self.rows])
