"""A drafter for each kind of text, chosen anew as the text and the measured gain change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from specrag.decoding.budget import DraftBudget, PassCosts
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.decoding.goodput import worthwhile
from specrag.decoding.policy import num_accepted
from specrag.decoding.tree import DraftTree
from specrag.drafters.arms import ArmGoodput
from specrag.drafters.composite import CompositeDrafter
from specrag.drafters.domain import CODE, DOMAINS, MATH, TEXT, Decoder, DomainTracker
from specrag.drafters.members import Members, MemberSessions
from specrag.drafters.prompt_lookup import PromptLookupDrafter
from specrag.drafters.suffix import SuffixDrafter
from specrag.errors import ConfigError, suggest
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer

_NODE_COST = 0.02  # of a pass, where the costs were not measured


class SelectorDrafter(Drafter):
    """Drafts code, mathematics and plain text by the drafter that suits each best.

    The kind of text is recognised from the prompt and from what has been written lately. Each
    kind begins with its configured drafter; another one takes over when it has proved to bring
    more tokens for the cost of a pass. All of them follow the text, so a change is possible at
    any token; only the chosen one proposes. What is learned is shared by all sessions, so later
    requests profit from earlier ones.

    Args:
        by_domain: The drafter of ``code``, ``math`` and ``text``; a kind left out has that of
            ``text``, or the first one. The same object may serve several. None takes suffix
            drafting, for text with prompt lookup: the best for the embedded model, by little.
        others: Further drafters to be tried for every kind.
        draft_costs: Drafter name to what a draft costs, a pass of the target over one token
            being 1.0; those left out cost nothing.
    """

    name = "selector"

    def __init__(
        self,
        by_domain: Mapping[str, Drafter] | None = None,
        others: Sequence[Drafter] = (),
        draft_costs: Mapping[str, float] | None = None,
    ) -> None:
        by_domain = _default_arms() if by_domain is None else by_domain
        self._members = Members(_arms(by_domain, others))
        fallback = by_domain.get(TEXT, next(iter(by_domain.values())))
        configured = {domain: by_domain.get(domain, fallback).name for domain in DOMAINS}
        self._draft_costs = _checked_costs(draft_costs or {}, self._members.names)
        self._goodput = ArmGoodput(configured, self._members.names)
        self._decoder: Decoder | None = None
        self._costs: PassCosts | None = None
        self.feature_layers = self._members.feature_layers

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of all drafters, in the order of their sessions."""
        return self._members.names

    def bind(
        self, target: TargetModel, tokenizer: Tokenizer, costs: PassCosts | None = None
    ) -> None:
        """Binds every drafter, and takes the tokenizer to read the text with.

        Args:
            target: Whose tokens are guessed.
            tokenizer: The target's.
            costs: What a pass of the target costs.

        Raises:
            ConfigError: One of them cannot draft for this target.
        """
        self._members.bind(target, tokenizer, costs)
        self._decoder, self._costs = tokenizer, costs
        # One of them drafts at a time; what the first level costs has to stand for all.
        self.levels, self.device = self._members.levels[:1], self._members.device
        self.feature_layers = self._members.feature_layers

    def open(self, contexts: Sequence[DraftContext]) -> SelectorSession:
        """Starts a session of every drafter.

        Args:
            contexts: One for each row.
        """
        return SelectorSession(self, self._members.open(contexts), contexts)

    def report(self) -> dict[str, dict[str, dict[str, float]]]:
        """Returns what each drafter brought, for each kind of text met so far.

        Returns:
            Domain, then drafter, to ``rounds``, ``tokens`` (emitted, as far as its drafts
            explain them) and ``goodput`` (lately, in tokens a pass over one token).
        """
        return self._goodput.report()

    def tracker(self, context: DraftContext) -> DomainTracker:
        """Makes what recognises the kind of text of one row.

        Args:
            context: Of the row.
        """
        return DomainTracker(self._decoder, context.prompt_ids)

    def choose(self, domain: str, explore: bool) -> str:
        """Returns the drafter to ask, by name; changes nothing.

        Args:
            domain: Kind of text.
            explore: Whether one may be tried that is not the best known.
        """
        return self._goodput.choose(domain, explore)

    def learn(self, domain: str, arm: str, tree: DraftTree, token_ids: Sequence[int]) -> None:
        """Judges a proposal by what was emitted in its place.

        As if just the part worth its costs had been verified: what the decoding loop really sent
        is its own decision, which should not make a drafter look good or bad.

        Args:
            domain: Kind of text.
            arm: Name of the drafter.
            tree: What it proposed.
            token_ids: What was emitted.
        """
        if self._costs is not None and len(tree.confidences) == len(tree):
            tree = tree.truncated(worthwhile([tree], self._costs), tree.max_depth)
        spent = 1.0 + _NODE_COST * len(tree)
        if self._costs is not None:
            spent = self._costs.of(1 + len(tree))
        spent += self._draft_costs.get(arm, 0.0)
        self._goodput.record(domain, arm, 1 + num_accepted(tree, token_ids), spent)


class _Choice(NamedTuple):
    domain: str
    arm: str


Ask = Callable[[int, list[int]], list[DraftTree]]
"""Lets a member propose for the rows at some places of those asked for."""


class SelectorSession(DraftSession):
    """The sessions of all drafters over one batch, and the kind of text of each row.

    Args:
        drafter: Chooses and learns.
        members: The sessions of its drafters.
        contexts: One for each row.
    """

    def __init__(
        self, drafter: SelectorDrafter, members: MemberSessions, contexts: Sequence[DraftContext]
    ) -> None:
        self._drafter = drafter
        self._members = members
        self._trackers = [drafter.tracker(context) for context in contexts]
        self._proposed: dict[int, tuple[_Choice, DraftTree]] = {}

    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        """Lets the chosen drafter of each row propose, and remembers what it proposed.

        Args:
            rows: Indices of the rows still running.
            budget: The largest tree allowed for each of them.
        """

        def ask(member: int, places: list[int]) -> list[DraftTree]:
            known_as = self._members.rows_of(member, [rows[place] for place in places])
            return self._members.of(member).propose(known_as, [budget[place] for place in places])

        choices = self._choices(rows)
        trees = self._collected(choices, ask)
        for row, most, choice, tree in zip(rows, budget, choices, trees, strict=True):
            self._proposed.pop(row, None)
            # A round that allowed no draft says nothing of the drafter.
            if min(most.num_speculative_tokens, most.max_depth) > 0:
                self._proposed[row] = choice, tree
        return trees

    def propose_after(
        self,
        rows: Sequence[int],
        budget: Sequence[DraftBudget],
        ahead: Sequence[Sequence[int]],
    ) -> list[DraftTree]:
        """Proposes as if further tokens had been committed; nothing is learned from this.

        Args:
            rows: Indices of running rows.
            budget: The largest tree allowed for each of them.
            ahead: Tokens assumed behind the last committed one, for each of them.
        """

        def ask(member: int, places: list[int]) -> list[DraftTree]:
            known_as = self._members.rows_of(member, [rows[place] for place in places])
            budgets = [budget[place] for place in places]
            assumed = [ahead[place] for place in places]
            return self._members.of(member).propose_after(known_as, budgets, assumed)

        return self._collected(self._choices(rows), ask)

    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        """Passes committed tokens to every drafter, and judges the last proposal by them.

        Args:
            row: Index of the row.
            token_ids: The tokens in order.
            features: The target's states, see ``DraftSession``.
        """
        if row in self._proposed and token_ids:
            choice, tree = self._proposed.pop(row)
            self._drafter.learn(choice.domain, choice.arm, tree, token_ids)
        self._trackers[row].observe(token_ids)
        self._members.observe(row, token_ids, features)

    def join(self, context: DraftContext) -> int:
        """Adds a row to the session of every drafter.

        Args:
            context: Of the new row.

        Returns:
            Its index.

        Raises:
            FixedBatchError: One of the sessions cannot grow.
        """
        row = self._members.join(context)
        self._trackers.append(self._drafter.tracker(context))
        return row

    def close(self) -> None:
        """Closes the sessions of all drafters."""
        self._members.close()

    def _choices(self, rows: Sequence[int]) -> list[_Choice]:
        choices: list[_Choice] = []
        for row in rows:
            domain = self._trackers[row].domain
            # One row of a round is enough to try another drafter with.
            is_first = all(choice.domain != domain for choice in choices)
            choices.append(_Choice(domain, self._drafter.choose(domain, is_first)))
        return choices

    def _collected(self, choices: Sequence[_Choice], ask: Ask) -> list[DraftTree]:
        places: dict[str, list[int]] = {}
        for place, choice in enumerate(choices):
            places.setdefault(choice.arm, []).append(place)
        trees: dict[int, DraftTree] = {}
        for arm, asked in places.items():
            proposed = ask(self._drafter.arms.index(arm), asked)
            trees.update(zip(asked, proposed, strict=True))
        return [
            replace(trees[place], origins=((arm,),) * len(trees[place]), domain=domain)
            for place, (domain, arm) in enumerate(choices)
        ]


def _default_arms() -> dict[str, Drafter]:
    suffix = SuffixDrafter()
    both = CompositeDrafter([SuffixDrafter(), PromptLookupDrafter()])
    return {CODE: suffix, MATH: suffix, TEXT: both}


def _arms(by_domain: Mapping[str, Drafter], others: Sequence[Drafter]) -> list[Drafter]:
    if not by_domain:
        raise ConfigError(
            "a selector needs a drafter for at least one kind of text",
            hint=f"name one for {', '.join(DOMAINS)}",
        )
    for domain in by_domain:
        if domain not in DOMAINS:
            raise ConfigError(f"unknown kind of text {domain!r}; {suggest(domain, DOMAINS)}")
    arms: dict[str, Drafter] = {}
    for drafter in (*by_domain.values(), *others):
        if arms.setdefault(drafter.name, drafter) is not drafter:
            raise ConfigError(
                f"a selector got two different drafters named {drafter.name!r}",
                hint="pass the same object for every kind of text that it serves",
            )
    return list(arms.values())


def _checked_costs(draft_costs: Mapping[str, float], arms: Sequence[str]) -> dict[str, float]:
    for name, cost in draft_costs.items():
        if name not in arms:
            raise ConfigError(f"draft_costs has unknown drafter {name!r}; {suggest(name, arms)}")
        if not 0 <= cost < float("inf"):
            raise ConfigError(
                f"the draft cost of {name!r} must be 0 or more passes of the target, got {cost}"
            )
    return dict(draft_costs)
