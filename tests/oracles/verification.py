"""Sample-then-match by its definition: decode plainly, and see how far the tree went along."""

from __future__ import annotations

from collections.abc import Callable

from specrag.decoding.tree import DraftTree


def plain_verification(
    tree: DraftTree, choose_after: Callable[[tuple[int, ...]], int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The accepted nodes and all tokens of a pass, given the target's token after any tokens."""
    spelled = {
        tuple(tree.token_ids[step] for step in tree.path_to(node)): node
        for node in range(len(tree))
    }
    nodes: list[int] = []
    tokens: tuple[int, ...] = ()
    while True:
        tokens += (choose_after(tokens),)
        if tokens not in spelled:
            return tuple(nodes), tokens
        nodes.append(spelled[tokens])
