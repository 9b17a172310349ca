"""FollowingCache: a draft model's key/value cache, kept in step with texts that others decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from specrag.models.kv_cache import KVCache
from specrag.models.target import ModelOutput, TargetModel, TreePass

_LONG = 16
"""More missing tokens than this are prefilled, which computes no logits of theirs."""

_States = list[tuple[torch.Tensor, torch.Tensor]]


class FollowingCache:
    """Holds the beginning of each row's text, and computes only what is new of it.

    What was drafted stays in the cache; when the text has gone on, the longest beginning that
    both share is kept and the rest rolled back. So an accepted draft is not computed again, and
    nothing has to be undone after a proposal. Rows that are not asked for are moved out of the
    batch and cost nothing until they are asked for again.

    Args:
        model: The draft model.
    """

    def __init__(self, model: TargetModel) -> None:
        self._model = model
        self._cache: KVCache | None = None
        self.rows: list[int] = []
        self._held: dict[int, list[int]] = {}
        self._parked: dict[int, _States] = {}

    def follow(self, texts: Mapping[int, Sequence[int]]) -> list[list[int]]:
        """Brings the cache to the end of these texts, except for a few last tokens.

        Args:
            texts: Row to the draft model's tokens of its text, at least one; these rows, and no
                others, are then the batch, in the order of ``rows``.

        Returns:
            The last tokens of each row in that order, at least one, for the next pass to begin
            with.
        """
        self._arrange(list(texts))
        missing = [self._keep_common(row, texts[row]) for row in self.rows]
        self._batch.rollback([len(self._held[row]) for row in self.rows])
        if max(map(len, missing)) > _LONG:
            self._prefill(missing)
            missing = [tokens[-1:] for tokens in missing]
        return missing

    def forward(self, tree_pass: TreePass) -> ModelOutput:
        """Runs the draft model over nodes, which stay pending.

        Args:
            tree_pass: One tree for each row of the batch.
        """
        return self._model.forward(tree_pass, self._batch)

    def commit(self, paths: Sequence[Sequence[int]], tokens: Sequence[Sequence[int]]) -> None:
        """Keeps pending nodes.

        Args:
            paths: For each row of the batch the nodes to keep, top down.
            tokens: The draft model's token of each of them.
        """
        self._batch.commit(paths)
        for row, path, kept in zip(self.rows, paths, tokens, strict=True):
            assert len(path) == len(kept), f"row {row} keeps {len(path)} nodes, {len(kept)} tokens"
            self._held[row] += kept

    def reset(self) -> None:
        """Forgets everything, such as after an error half way; it is computed again when asked."""
        self._cache = None
        self.rows = []
        self._held = {}
        self._parked = {}

    def lengths(self) -> dict[int, int]:
        """Returns how many tokens of each row are held, after checking that all is in order.

        Raises:
            AssertionError: The cache is not in step.
        """
        if self._cache is not None:
            self._cache.check_integrity()
            expected = tuple(len(self._held[row]) for row in self.rows)
            assert self._cache.lengths == expected, f"{self._cache.lengths} is not {expected}"
        return {row: len(held) for row, held in self._held.items()}

    @property
    def _batch(self) -> KVCache:
        assert self._cache is not None, "follow comes first"
        return self._cache

    def _arrange(self, rows: Sequence[int]) -> None:
        """Makes the rows the batch: moves the others out, and these in."""
        if self._cache is None:
            self._cache = self._model.new_cache(len(rows))
            self.rows = list(rows)
            self._fill(range(len(rows)))
        elif self.rows != rows and set(self.rows) != set(rows):
            self._bring_in([row for row in rows if row not in self.rows])
            self._move_out({row for row in self.rows if row not in rows})

    def _bring_in(self, rows: Sequence[int]) -> None:
        if not rows:
            return
        present = len(self.rows)
        self._batch.rollback(self._batch.lengths)  # nothing is pending any more
        self._batch.join(self._model.new_cache(len(rows)))
        self.rows += rows
        self._fill(range(present, len(self.rows)))

    def _fill(self, slots: Sequence[int]) -> None:
        for slot in slots:
            row = self.rows[slot]
            if row in self._parked:
                self._batch.import_row(slot, self._parked.pop(row))
            self._held.setdefault(row, [])

    def _move_out(self, rows: set[int]) -> None:
        if not rows:
            return
        for slot, row in enumerate(self.rows):
            if row in rows and self._held[row]:
                self._parked[row] = self._batch.export_row(slot, len(self._held[row]))
        staying = [slot for slot, row in enumerate(self.rows) if row not in rows]
        self._batch.select_rows(staying)
        self.rows = [self.rows[slot] for slot in staying]

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
        self._model.prefill([tokens[:-1] or tokens for tokens in missing], self._batch)
        for row, tokens in zip(self.rows, missing, strict=True):
            self._held[row] += tokens[:-1]
        self._batch.rollback([len(self._held[row]) for row in self.rows])
