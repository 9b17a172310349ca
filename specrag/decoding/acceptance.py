"""What a row has learned of its drafter: how often a draft was right, depth by depth."""

from __future__ import annotations

from collections.abc import Sequence

from specrag.decoding.tree import ROOT, DraftTree

_PRIOR_WEIGHT = 4.0  # outcomes that the drafter's own word counts as
_DISCOUNT = 0.95  # of a depth's evidence with each outcome: a memory of about 20 outcomes
_FIRST_GUESS = 0.5  # of a drafter that states no confidences, for the first child of a node
_MOST = 0.98  # no draft is certain


class DepthAcceptance:
    """Outcomes by depth: the share of drafts that were right there, given right until there.

    Learns from whole proposals, also from parts that were never sent to the target: what was
    emitted tells whether they would have been accepted.
    """

    def __init__(self) -> None:
        self._tested: list[float] = []
        self._accepted: list[float] = []
        self._stated: list[float] = []

    def record(self, proposal: DraftTree, emitted: Sequence[int]) -> None:
        """Compares a proposal with the tokens that were emitted in its place.

        Args:
            proposal: As the drafter gave it.
            emitted: The tokens of the round.
        """
        conditionals = stated_conditionals(proposal)
        children = proposal.children()
        node = ROOT
        for depth, token in enumerate(emitted, start=1):
            siblings = [i for i, parent in enumerate(proposal.parents) if parent == node]
            if not siblings:
                return
            found = children.get((node, token))
            stated = sum([conditionals[i] for i in siblings])
            self._note(depth, found is not None, min(stated, 1.0))
            if found is None:
                return
            node = found

    def tested(self, depth: int) -> float:
        """Returns how many outcomes are remembered at a depth.

        Args:
            depth: 1 for the first drafted token.
        """
        return self._tested[depth - 1] if depth <= len(self._tested) else 0.0

    def rate(self, depth: int, expected: float) -> float:
        """Returns the acceptance at a depth, given that all before it was accepted.

        Args:
            depth: 1 for the first drafted token.
            expected: What to believe without evidence.
        """
        if depth > len(self._tested):
            return expected
        return (self._accepted[depth - 1] + _PRIOR_WEIGHT * expected) / (
            self._tested[depth - 1] + _PRIOR_WEIGHT
        )

    def fade(self, factor: float) -> None:
        """Weakens all evidence, to be open for new.

        Args:
            factor: What remains of it, from 0 to 1.
        """
        for values in (self._tested, self._accepted, self._stated):
            values[:] = [value * factor for value in values]

    def calibrated(self, tree: DraftTree) -> tuple[float, ...]:
        """Returns the confidences of a tree in the light of what was learned.

        The drafter's statement for a depth is scaled by how often such statements came true.

        Args:
            tree: A proposal.
        """
        conditionals = stated_conditionals(tree)
        depths = tree.depths
        sums: dict[int, float] = {}
        for parent, value in zip(tree.parents, conditionals, strict=True):
            sums[parent] = sums.get(parent, 0.0) + value
        confidences: list[float] = []
        for parent, depth, value in zip(tree.parents, depths, conditionals, strict=True):
            scale = min(self._reliability(depth), _MOST / sums[parent]) if sums[parent] else 0.0
            above = 1.0 if parent == ROOT else confidences[parent]
            confidences.append(above * value * scale)
        return tuple(confidences)

    def _reliability(self, depth: int) -> float:
        if depth > len(self._tested):
            return 1.0
        return (self._accepted[depth - 1] + _PRIOR_WEIGHT) / (
            self._stated[depth - 1] + _PRIOR_WEIGHT
        )

    def _note(self, depth: int, accepted: bool, stated: float) -> None:
        while len(self._tested) < depth:
            for values in (self._tested, self._accepted, self._stated):
                values.append(0.0)
        at = depth - 1
        self._tested[at] = _DISCOUNT * self._tested[at] + 1.0
        self._accepted[at] = _DISCOUNT * self._accepted[at] + accepted
        self._stated[at] = _DISCOUNT * self._stated[at] + stated


def stated_conditionals(tree: DraftTree) -> list[float]:
    """Returns each node's stated probability of acceptance, given that of its parent.

    Args:
        tree: A proposal; without confidences, each further child counts half of the one before.
    """
    if len(tree.confidences) != len(tree):
        found = []
        ranks: dict[int, int] = {}
        for parent in tree.parents:
            rank = ranks[parent] = ranks.get(parent, -1) + 1
            found.append(_FIRST_GUESS ** (1 + rank))
        return found
    above = [1.0 if parent == ROOT else tree.confidences[parent] for parent in tree.parents]
    pairs = zip(tree.confidences, above, strict=True)
    return [min(1.0, mine / parent) if parent > 0 else 0.0 for mine, parent in pairs]
