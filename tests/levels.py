"""Cuts trees into the passes that evaluate them part by part, each behind the pending nodes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specrag.decoding.tree import DraftTree, pack
from specrag.models.target import TreePass


def passes_of(
    roots: Sequence[int], trees: Sequence[DraftTree], cuts: Sequence[Sequence[int]]
) -> tuple[list[TreePass], list[list[int]]]:
    """Splits the nodes of each row, root included, at that row's cuts.

    Args:
        roots: Last committed token of each row.
        trees: The tree below it.
        cuts: For each row the ends of its parts but the last, ascending, as many for each row.

    Returns:
        One pass a part, padded to the widest row, and for each row the pending index of each node.
    """
    whole = pack(roots, trees)
    ends = [[*row, 1 + len(tree)] for row, tree in zip(cuts, trees, strict=True)]
    starts = [[0, *row] for row in cuts]
    places: list[list[int]] = [[] for _ in trees]
    passes, kept = [], 0
    for part in range(len(ends[0])):
        spans = [range(s[part], e[part]) for s, e in zip(starts, ends, strict=True)]
        width = max(1, *(len(span) for span in spans))
        token_ids = torch.zeros(len(trees), width, dtype=torch.long)
        depths = torch.zeros(len(trees), width, dtype=torch.long)
        visible = torch.zeros(len(trees), width, kept + width, dtype=torch.bool)
        visible[:, range(width), range(kept, kept + width)] = True
        for row, span in enumerate(spans):
            places[row] += range(kept, kept + len(span))
            for column, node in enumerate(span):
                token_ids[row, column] = whole.token_ids[row, node]
                depths[row, column] = whole.depths[row, node]
                for ancestor in whole.visible[row, node].nonzero().flatten().tolist():
                    visible[row, column, places[row][ancestor]] = True
        passes.append(TreePass(token_ids, depths, visible))
        kept += width
    return passes, places
