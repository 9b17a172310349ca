"""Several draft trees become one: the union of their paths, the best of them within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat

from specrag.decoding.acceptance import stated_conditionals
from specrag.decoding.budget import DraftBudget
from specrag.decoding.tree import ROOT, DraftTree


@dataclass(slots=True, eq=False)
class _Node:
    """A node of the union; ``place`` is where the first tree has it, so no two are alike."""

    token: int
    parent: _Node | None
    confidence: float
    place: tuple[int, int, int]
    origins: list[str] = field(default_factory=list)
    children: dict[int, _Node] = field(default_factory=dict)
    num_kept_children: int = 0
    index: int | None = None


def merge(
    trees: Sequence[DraftTree],
    budget: DraftBudget,
    names: Sequence[str],
    weights: Sequence[float] = (),
) -> DraftTree:
    """Returns the best nodes of the union of several trees.

    A path that several trees hold is trusted as much as by the most confident of them: drafters
    that look at the same text agree in their errors too. The best node comes first; of equal ones
    the shallower, then the one of the earlier tree, then the one that stands earlier in it. So a
    parent is always before its children and at least as confident, and a larger
    ``num_speculative_tokens`` only adds nodes at the end.

    Args:
        trees: One of each drafter, with or without confidences.
        budget: The largest tree to return.
        names: Of the drafters; a node's origins, unless its tree states some itself.
        weights: Factor for the probabilities of each tree's nodes given their parents, which
            stay at most 1. None leaves them as stated.

    Returns:
        A tree with confidences and origins; its domain is the first that a tree states.
        ``draft_probs`` are dropped: the union was not drawn from them.
    """
    root = _Node(ROOT, None, 1.0, (0, 0, 0), index=ROOT)
    union: list[_Node] = []
    given = zip(trees, names, weights or repeat(1.0, len(trees)), strict=True)
    for member, (tree, name, weight) in enumerate(given):
        _add(tree, name, weight, member, root, union)
    union.sort(key=lambda node: (-node.confidence, node.place))
    kept: list[_Node] = []
    parents: list[int] = []
    for node in union:
        parent = node.parent
        # A parent is missing where it was one alternative too many itself.
        if parent is None or parent.index is None or node.place[0] > budget.max_depth:
            continue
        if parent.num_kept_children == budget.branching:
            continue
        if len(kept) == budget.num_speculative_tokens:
            break
        parent.num_kept_children += 1
        node.index = len(kept)
        parents.append(parent.index)
        kept.append(node)
    return DraftTree(
        tuple([node.token for node in kept]),
        tuple(parents),
        tuple([node.confidence for node in kept]),
        tuple([tuple(dict.fromkeys(node.origins)) for node in kept]),
        domain=next((tree.domain for tree in trees if tree.domain), ""),
    )


def _add(
    tree: DraftTree, name: str, weight: float, member: int, root: _Node, union: list[_Node]
) -> None:
    confidences: list[float] = []
    nodes: list[_Node] = []
    for index, conditional in enumerate(stated_conditionals(tree)):
        above, token = tree.parents[index], tree.token_ids[index]
        parent = root if above == ROOT else nodes[above]
        path = 1.0 if above == ROOT else confidences[above]
        confidence = path * min(1.0, weight * conditional)
        node = parent.children.get(token)
        if node is None:
            place = (parent.place[0] + 1, member, index)
            node = parent.children[token] = _Node(token, parent, confidence, place)
            union.append(node)
        node.confidence = max(node.confidence, confidence)
        node.origins.extend(tree.origins[index] if tree.origins else (name,))
        confidences.append(confidence)
        nodes.append(node)
