"""Verification: which drafted tokens the target would have chosen itself.

Sample-then-match: draw the target's own next token at a node; when it is one of the node's
children, descend, else emit it and stop. The emitted tokens are the target's own draws, whatever
was proposed, so the method is lossless for any tree, greedy or sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specrag.decoding.tree import ROOT, DraftTree


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of one pass for one row.

    Attributes:
        path: Accepted nodes of the tree, top down.
        accepted: Their tokens.
        next_token: The token that the target added: *bonus* when a whole branch was accepted,
            *recovered* when it replaces a rejected draft.
    """

    path: tuple[int, ...]
    accepted: tuple[int, ...]
    next_token: int

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens that the pass adds to the row."""
        return (*self.accepted, self.next_token)

    @property
    def num_accepted(self) -> int:
        """Accepted tokens, the bonus token not counted."""
        return len(self.path)


def verify(tree: DraftTree, choose: Callable[[int, tuple[int, ...]], int]) -> Verification:
    """Walks down the tree along the target's own choices.

    Only nodes on the accepted path are asked, so costly processors run no more often than the
    target emits tokens.

    Args:
        tree: What was proposed.
        choose: The target's token after a node, given the node (``ROOT`` first) and the tokens
            accepted so far. Called once for each node of the path, in order.

    Returns:
        The accepted path and the token after it.
    """
    children = tree.children()
    node = ROOT
    path: list[int] = []
    accepted: list[int] = []
    while True:
        token = choose(node, tuple(accepted))
        child = children.get((node, token))
        if child is None:
            return Verification(tuple(path), tuple(accepted), token)
        path.append(child)
        accepted.append(token)
        node = child
