"""Verification: which drafted tokens are kept, and the token that the target adds.

Sample-then-match: draw the target's own next token at a node; when it is one of the node's
children, descend, else emit it and stop. The emitted tokens are the target's own draws, whatever
was proposed, so the method is lossless for any tree, greedy or sampled. Rejection sampling keeps
the target's law instead, for chains that were drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from specrag.decoding.noise import Stream, draw, uniform
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


def verify_rejection(
    tree: DraftTree,
    target_probs: Callable[[int, tuple[int, ...]], torch.Tensor],
    seed: int,
    position: int,
) -> Verification:
    """Accepts or rejects a randomly drawn chain so that the output follows the target's law.

    Speculative sampling (Leviathan, Kalman and Matias 2023; Chen and others 2023): a drafted
    token is accepted with probability ``min(1, target_probs / draft_probs)``; a rejected one is
    replaced by a draw from the positive part of ``target_probs - draft_probs``. Accepts more often
    than ``verify`` when drafter and target differ; the tokens for a seed are others than those of
    plain decoding, their law is the same.

    Args:
        tree: A chain with ``draft_probs``, or an empty tree.
        target_probs: The target's law ``[vocab]`` after a node, given the node (``ROOT`` first)
            and the tokens accepted so far. Called once for each node of the path, in order.
        seed: The row's seed.
        position: Absolute position of the first drafted token.

    Returns:
        The accepted path and the token after it.
    """
    # The chain must arrive as it was drawn. Whether it has a token at some depth may depend on
    # anything known before that token was drawn (a budget, the tokens above it), never on the
    # token itself or those below it. Dropping, say, a token that the drafter found unlikely
    # leaves only likely ones at that depth: their law is then no longer `draft_probs`, the test
    # accepts them at the wrong rate, and the output is biased towards them. The same holds for
    # choosing between this function and `verify` by looking at the tokens.
    assert tree.is_chain, "rejection sampling needs a chain"
    assert not len(tree) or tree.draft_probs is not None, "the chain must bring its draft_probs"
    accepted: list[int] = []
    for node, token in enumerate(tree.token_ids):
        law = target_probs(node - 1, tuple(accepted)).double()
        draft_law = _draft_law(tree, node, law)
        coin = uniform(seed, position + node, Stream.ACCEPT)
        # Strictly below: a coin of 0 must not accept a token that the target excludes.
        if not coin * float(draft_law[token]) < float(law[token]):
            residual = (law - draft_law).clamp_(min=0)
            # Equal laws reject nothing; only rounding gets here with nothing left over.
            left = residual if bool(residual.any()) else law
            recovered = draw(left.log(), seed, position + node, Stream.RESIDUAL)
            return Verification(tuple(range(node)), tuple(accepted), recovered)
        accepted.append(token)
    law = target_probs(len(tree) - 1, tuple(accepted)).double()
    bonus = draw(law.log(), seed, position + len(tree), Stream.TARGET)
    return Verification(tuple(range(len(tree))), tuple(accepted), bonus)


def _draft_law(tree: DraftTree, node: int, law: torch.Tensor) -> torch.Tensor:
    """The law ``[vocab]`` that a drafted token was drawn from, beside the target's."""
    assert tree.draft_probs is not None, "the chain must bring its draft_probs"
    draft_law = tree.draft_probs[node].to(law)
    assert draft_law.shape == law.shape, "draft_probs must cover the target's vocabulary"
    assert draft_law[tree.token_ids[node]] > 0, "a token was drafted that draft_probs excludes"
    return draft_law
