"""Drafters that do as they are told, and remember what happened to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from specrag.decoding.budget import DraftBudget, PassCosts
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.decoding.tree import DraftTree
from specrag.errors import ConfigError
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer


class Scripted(Drafter):
    """Proposes the same each round; with ``by_last``, what follows the last committed token.

    Args:
        name: Its name.
        tree: What it proposes.
        by_last: Last committed token to a proposal, in place of ``tree``.
        layers: The target layers it asks for once it is bound.
        grows: Whether rows may join.
        fails_at: ``open`` or ``close``, which then raises.
    """

    def __init__(
        self,
        name: str,
        tree: DraftTree | None = None,
        *,
        by_last: Mapping[int, DraftTree] | None = None,
        layers: tuple[int, ...] = (),
        grows: bool = True,
        fails_at: str = "",
    ) -> None:
        self.name = name
        self.tree = tree or DraftTree()
        self.by_last = by_last or {}
        self.layers = layers
        self.grows = grows
        self.fails_at = fails_at
        self.bound_to: list[PassCosts | None] = []
        self.sessions: list[ScriptedSession] = []

    def bind(
        self, target: TargetModel, tokenizer: Tokenizer, costs: PassCosts | None = None
    ) -> None:
        self.bound_to.append(costs)
        self.feature_layers = self.layers

    def open(self, contexts: Sequence[DraftContext]) -> ScriptedSession:
        if self.fails_at == "open":
            raise ConfigError(f"{self.name} cannot open")
        self.sessions.append(ScriptedSession(self, len(contexts)))
        return self.sessions[-1]


class ScriptedSession(DraftSession):
    def __init__(self, drafter: Scripted, num_rows: int) -> None:
        self._drafter = drafter
        self.observed: list[list[int]] = [[] for _ in range(num_rows)]
        self.features: list[Mapping[int, torch.Tensor] | None] = []
        self.asked: list[list[int]] = []
        self.closed = 0

    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        self.asked.append(list(rows))
        return [self._tree(row, most, ()) for row, most in zip(rows, budget, strict=True)]

    def propose_after(
        self,
        rows: Sequence[int],
        budget: Sequence[DraftBudget],
        ahead: Sequence[Sequence[int]],
    ) -> list[DraftTree]:
        asked = zip(rows, budget, ahead, strict=True)
        return [self._tree(row, most, tokens) for row, most, tokens in asked]

    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        self.observed[row].extend(token_ids)
        self.features.append(features)

    def join(self, context: DraftContext) -> int:
        if not self._drafter.grows:
            raise ConfigError(f"{self._drafter.name} cannot grow")
        self.observed.append([])
        return len(self.observed) - 1

    def close(self) -> None:
        self.closed += 1
        if self._drafter.fails_at == "close":
            raise RuntimeError(f"{self._drafter.name} cannot close")

    def _tree(self, row: int, budget: DraftBudget, ahead: Sequence[int]) -> DraftTree:
        last = [*self.observed[row], *ahead][-1:]
        tree = self._drafter.by_last.get(last[0]) if last else None
        tree = self._drafter.tree if tree is None else tree
        return tree.truncated(budget.num_speculative_tokens, budget.max_depth)
