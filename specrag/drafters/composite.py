"""Several drafters at once: their drafts become one tree, by what each has earned in trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from specrag.decoding.acceptance import stated_conditionals
from specrag.decoding.budget import DraftBudget, PassCosts
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.members import Members, MemberSessions
from specrag.drafters.trees.merge import merge
from specrag.errors import ConfigError
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer

_PRIOR_WEIGHT = 4.0
"""Accepted nodes that a member's own word counts as, before anything is known of it."""

_DISCOUNT = 0.97
"""Of the evidence with each round: a memory of about 30 rounds, as a text changes its kind."""


class CompositeDrafter(Drafter):
    """Asks several drafters and drafts the best nodes of all their trees.

    Every member may use the whole budget; the union of their paths is cut to it, the likeliest
    first. What a member states is scaled down, row by row, by how often its statements came true,
    so that one that promises too much does not crowd out the others.

    Args:
        drafters: The members, of different names. Of equally good nodes, the one of the earlier
            member comes first.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        if not drafters:
            raise ConfigError(
                "a combination of drafters needs at least one", hint="name some, as in 'a+b'"
            )
        names = [drafter.name for drafter in drafters]
        self.name = "+".join(names)
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"drafter {name!r} is named {names.count(name)} times in {self.name!r}",
                    hint="name each drafter once: a second one of a kind proposes nothing new",
                )
        self._members = Members(drafters)
        self.feature_layers = self._members.feature_layers

    def bind(
        self, target: TargetModel, tokenizer: Tokenizer, costs: PassCosts | None = None
    ) -> None:
        """Binds every member.

        Args:
            target: Whose tokens are guessed.
            tokenizer: The target's.
            costs: What a pass of the target costs.

        Raises:
            ConfigError: A member cannot draft for this target.
        """
        self._members.bind(target, tokenizer, costs)
        self.feature_layers = self._members.feature_layers
        self.levels, self.device = self._members.levels, self._members.device

    def open(self, contexts: Sequence[DraftContext]) -> CompositeSession:
        """Starts a session of every member.

        Args:
            contexts: One for each row.
        """
        return CompositeSession(self._members.names, self._members.open(contexts), len(contexts))


class CompositeSession(DraftSession):
    """The sessions of all members, and what each has earned in trust.

    Args:
        names: Of the members.
        members: Their sessions.
        num_rows: Number of rows.
    """

    def __init__(self, names: Sequence[str], members: MemberSessions, num_rows: int) -> None:
        self._names = names
        self._members = members
        self._trust = [Trust(len(members)) for _ in range(num_rows)]
        self._proposed: dict[int, tuple[DraftTree, ...]] = {}

    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        """Proposes one tree for each named row, and remembers what each member proposed.

        Args:
            rows: Indices of the rows still running.
            budget: The largest tree allowed for each of them.
        """
        proposed = [
            self._members.of(member).propose(self._members.rows_of(member, rows), budget)
            for member in range(len(self._members))
        ]
        by_row = list(zip(*proposed, strict=True))
        self._proposed.update(zip(rows, by_row, strict=True))
        return self._merged(rows, budget, by_row)

    def propose_after(
        self,
        rows: Sequence[int],
        budget: Sequence[DraftBudget],
        ahead: Sequence[Sequence[int]],
    ) -> list[DraftTree]:
        """Proposes as if further tokens had been committed; no trust is earned by this.

        Args:
            rows: Indices of running rows.
            budget: The largest tree allowed for each of them.
            ahead: Tokens assumed behind the last committed one, for each of them.
        """
        proposed = [
            self._members.of(member).propose_after(
                self._members.rows_of(member, rows), budget, ahead
            )
            for member in range(len(self._members))
        ]
        return self._merged(rows, budget, list(zip(*proposed, strict=True)))

    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        """Passes committed tokens to every member, and compares them with its last proposal.

        Args:
            row: Index of the row.
            token_ids: The tokens in order.
            features: The target's states, see ``DraftSession``.
        """
        self._trust[row].learn(self._proposed.pop(row, ()), token_ids)
        self._members.observe(row, token_ids, features)

    def join(self, context: DraftContext) -> int:
        """Adds a row to the session of every member.

        Args:
            context: Of the new row.

        Returns:
            Its index.

        Raises:
            ConfigError: A member's session cannot grow.
        """
        row = self._members.join(context)
        self._trust.append(Trust(len(self._members)))
        return row

    def close(self) -> None:
        """Closes the sessions of all members."""
        self._members.close()

    def _merged(
        self,
        rows: Sequence[int],
        budget: Sequence[DraftBudget],
        by_row: Sequence[tuple[DraftTree, ...]],
    ) -> list[DraftTree]:
        return [
            merge(trees, most, self._names, self._trust[row].weights)
            for row, most, trees in zip(rows, budget, by_row, strict=True)
        ]


class Trust:
    """How far the statements of each member came true in one row.

    Args:
        num_members: Number of members.
    """

    def __init__(self, num_members: int) -> None:
        self._accepted = [0.0] * num_members
        self._stated = [0.0] * num_members

    @property
    def weights(self) -> list[float]:
        """Accepted per stated node of each member, at most 1.

        A member that promises too little is left at its word: to be scaled up made likely nodes
        look certain.
        """
        pairs = zip(self._accepted, self._stated, strict=True)
        return [
            min(1.0, (accepted + _PRIOR_WEIGHT) / (stated + _PRIOR_WEIGHT))
            for accepted, stated in pairs
        ]

    def learn(self, trees: Sequence[DraftTree], token_ids: Sequence[int]) -> None:
        """Compares proposals with what was committed in their place.

        A node counts when its parent came true: only then was its own statement put to the test.

        Args:
            trees: One of each member; none when nothing was asked.
            token_ids: The committed tokens.
        """
        for member, tree in enumerate(trees):
            accepted, stated = _outcome(tree, token_ids)
            self._accepted[member] = _DISCOUNT * self._accepted[member] + accepted
            self._stated[member] = _DISCOUNT * self._stated[member] + stated


def _outcome(tree: DraftTree, token_ids: Sequence[int]) -> tuple[int, float]:
    """Returns how many nodes came true, and how many should have by the tree's own word."""
    stated = 0.0
    reached = {ROOT: 0}
    for node, conditional in enumerate(stated_conditionals(tree)):
        depth = reached.get(tree.parents[node])
        if depth is None or depth == len(token_ids):
            continue
        stated += conditional
        if tree.token_ids[node] == token_ids[depth]:
            reached[node] = depth + 1
    return len(reached) - 1, stated
