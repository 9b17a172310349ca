"""Several drafters at once: their drafts become one tree, by what each has earned in trust."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from specrag.decoding.acceptance import stated_conditionals
from specrag.decoding.budget import DraftBudget, PassCosts
from specrag.decoding.costs import known_draft_level
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.asking import Asking
from specrag.drafters.members import Members, MemberSessions
from specrag.drafters.trees.merge import merge
from specrag.errors import ConfigError
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer

_Ask = Callable[[int, list[int], list[DraftBudget]], list[DraftTree]]
"""Asks a member about some places among the rows, with a budget for each."""

_PRIOR_WEIGHT = 4.0
"""Accepted nodes that a member's own word counts as, before anything is known of it."""

_DISCOUNT = 0.97
"""Of the evidence with each round: a memory of about 30 rounds, as a text changes its kind."""


class CompositeDrafter(Drafter):
    """Asks several drafters and drafts the best nodes of all their trees.

    Every member may use the whole budget; the union of their paths is cut to it, the likeliest
    first. What a member states is scaled down, row by row, by how often its statements came true,
    so that one that promises too much does not crowd out the others.

    Members that cost time, such as draft heads, are asked after those that cost none, and only as
    deep as that promises more tokens for the time, if it is known what a pass costs.

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
        self._costs: PassCosts | None = None
        self._level_costs: dict[int, float] = {}
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
        costly = [place for place, one in enumerate(self._members.drafters) if one.levels]
        self._costs, self._level_costs = costs, {}
        if costs is not None and 0 < len(costly) < len(self._members.drafters):
            # It is seen to here that they pay: to whoever asks, the combination costs nothing.
            self.levels = ()
            for place in costly:
                levels = self._members.drafters[place].levels
                self._level_costs[place] = sum(known_draft_level(target, one) for one in levels)

    def open(self, contexts: Sequence[DraftContext]) -> CompositeSession:
        """Starts a session of every member.

        Args:
            contexts: One for each row.
        """
        asking = partial(_asking, self._costs, self._level_costs)
        members = self._members.open(contexts)
        return CompositeSession(self._members.names, members, len(contexts), asking)


class CompositeSession(DraftSession):
    """The sessions of all members, and what each has earned in trust.

    Args:
        names: Of the members.
        members: Their sessions.
        num_rows: Number of rows.
        asking: Makes what a row needs to know of its costly members, by their places.
    """

    def __init__(
        self,
        names: Sequence[str],
        members: MemberSessions,
        num_rows: int,
        asking: Callable[[], dict[int, Asking]] = dict,
    ) -> None:
        self._names = names
        self._members = members
        self._new_asking = asking
        self._asking = [asking() for _ in range(num_rows)]
        costly = asking()
        self._order = sorted(range(len(members)), key=lambda member: member in costly)
        self._trust = [Trust(len(members)) for _ in range(num_rows)]
        self._proposed: dict[int, tuple[DraftTree, ...]] = {}

    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        """Proposes one tree for each named row, and remembers what each member proposed.

        Args:
            rows: Indices of the rows still running.
            budget: The largest tree allowed for each of them.
        """
        by_row = self._asked(
            rows,
            budget,
            lambda member, chosen, budgets: self._members.of(member).propose(
                self._members.rows_of(member, [rows[place] for place in chosen]), budgets
            ),
        )
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
        by_row = self._asked(
            rows,
            budget,
            lambda member, chosen, budgets: self._members.of(member).propose_after(
                self._members.rows_of(member, [rows[place] for place in chosen]),
                budgets,
                [ahead[place] for place in chosen],
            ),
        )
        return self._merged(rows, budget, by_row)

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
        proposed = self._proposed.pop(row, ())
        self._trust[row].learn(proposed, token_ids)
        if proposed:
            for member, asking in self._asking[row].items():
                asking.learn(proposed[member], token_ids)
        self._members.observe(row, token_ids, features)

    def join(self, context: DraftContext) -> int:
        """Adds a row to the session of every member.

        Args:
            context: Of the new row.

        Returns:
            Its index.

        Raises:
            FixedBatchError: A member's session cannot grow.
        """
        row = self._members.join(context)
        self._trust.append(Trust(len(self._members)))
        self._asking.append(self._new_asking())
        return row

    def close(self) -> None:
        """Closes the sessions of all members."""
        self._members.close()

    def _asked(
        self, rows: Sequence[int], budget: Sequence[DraftBudget], ask: _Ask
    ) -> list[tuple[DraftTree, ...]]:
        """What each member proposes for each row, those that cost nothing first."""
        found = [[DraftTree() for _ in self._order] for _ in rows]
        for member in self._order:
            budgets = [
                self._allowed(member, row, most, trees, len(rows))
                for row, most, trees in zip(rows, budget, found, strict=True)
            ]
            chosen = [place for place, own in enumerate(budgets) if own is not None]
            if chosen:
                own = [most for most in budgets if most is not None]
                for place, tree in zip(chosen, ask(member, chosen, own), strict=True):
                    found[place][member] = tree
        return [tuple(trees) for trees in found]

    def _allowed(
        self,
        member: int,
        row: int,
        most: DraftBudget,
        trees: Sequence[DraftTree],
        num_rows: int,
    ) -> DraftBudget | None:
        """The budget of a member in a row; None where it is not asked."""
        asking = self._asking[row].get(member)
        if asking is None or not most.num_speculative_tokens:
            return most
        weights = self._trust[row].weights
        free = merge(trees, most, self._names, weights)
        depth = asking.depth(free, most, num_rows)
        return replace(most, max_depth=depth) if depth else None

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


def _asking(costs: PassCosts | None, levels: Mapping[int, float]) -> dict[int, Asking]:
    if costs is None:
        return {}
    return {member: Asking(costs, level) for member, level in levels.items()}


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
