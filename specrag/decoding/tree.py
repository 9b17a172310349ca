"""DraftTree: what a drafter proposes, and how several of them become one pass of the target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from specrag.models.target import TreePass

ROOT = -1
"""Parent of the nodes that continue the last committed token."""


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Proposed continuations of one row, as a tree below the last committed token.

    The root is that token and is not stored. Nodes are in topological order (a parent comes before
    its children) and siblings have different tokens, which is all that verification asks for.

    Attributes:
        token_ids: Token of each node.
        parents: Index of each node's parent, ``ROOT`` for a child of the root.
        confidences: The drafter's estimate that the path down to each node is accepted; empty
            when it has none. Says what a node is worth, never whether it is right.
        origins: The names of the drafters that proposed each node, several when they agreed;
            empty when there is only the one that was asked.
        draft_probs: ``[nodes, vocab]``, the law that each token was drawn from at random given
            its ancestors; only for chains, and only where rejection sampling was asked for.
        domain: The kind of text that the drafter took this row for, where it tells kinds apart.
    """

    token_ids: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    confidences: tuple[float, ...] = field(default=(), compare=False)
    origins: tuple[tuple[str, ...], ...] = field(default=(), compare=False)
    draft_probs: torch.Tensor | None = field(default=None, compare=False, repr=False)
    domain: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.parents):
            raise ValueError(
                f"a tree needs one parent a token: {len(self.token_ids)} tokens, "
                f"{len(self.parents)} parents"
            )
        if self.confidences and len(self.confidences) != len(self.token_ids):
            raise ValueError(
                f"a tree needs one confidence a token or none: {len(self.token_ids)} tokens, "
                f"{len(self.confidences)} confidences"
            )
        for name in ("origins", "draft_probs"):
            given = getattr(self, name)
            if given is not None and len(given) not in (0, len(self.token_ids)):
                raise ValueError(
                    f"a tree needs {name} for each token or none: {len(self.token_ids)} tokens, "
                    f"{len(given)} {name}"
                )
        edges = set()
        for node, (token, parent) in enumerate(zip(self.token_ids, self.parents, strict=True)):
            if not ROOT <= parent < node:
                raise ValueError(f"node {node} has parent {parent}; a parent must come before it")
            if (parent, token) in edges:
                raise ValueError(f"node {node} repeats token {token} below parent {parent}")
            edges.add((parent, token))

    @classmethod
    def chain(cls, token_ids: Sequence[int], confidences: Sequence[float] = ()) -> DraftTree:
        """Returns a tree without branches.

        Args:
            token_ids: Tokens in order; may be empty.
            confidences: One for each token, or none.
        """
        parents = tuple(range(ROOT, len(token_ids) - 1))
        return cls(tuple(token_ids), parents, tuple(confidences))

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[int]]) -> DraftTree:
        """Merges continuations into one tree, sharing their common beginnings.

        Args:
            paths: Token sequences, each starting below the root.
        """
        nodes: dict[tuple[int, int], int] = {}
        for path in paths:
            parent = ROOT
            for token in path:
                parent = nodes.setdefault((parent, token), len(nodes))
        return cls(tuple(token for _, token in nodes), tuple(parent for parent, _ in nodes))

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def depths(self) -> tuple[int, ...]:
        """Depth of each node; children of the root have depth 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return tuple(depths)

    @property
    def max_depth(self) -> int:
        """Depth of the deepest node, 0 for an empty tree."""
        return max(self.depths, default=0)

    @property
    def is_chain(self) -> bool:
        """Whether no node has more than one child."""
        return self.parents == tuple(range(ROOT, len(self) - 1))

    def children(self) -> dict[tuple[int, int], int]:
        """Returns ``(parent, token) -> node`` for every edge."""
        edges = zip(self.parents, self.token_ids, strict=True)
        return {edge: node for node, edge in enumerate(edges)}

    def path_to(self, node: int) -> tuple[int, ...]:
        """Returns the nodes from the root's child down to a node.

        Args:
            node: Index of a node, or ``ROOT`` for the empty path.
        """
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return tuple(reversed(path))

    def truncated(self, num_nodes: int, max_depth: int) -> DraftTree:
        """Returns the part of the tree within a budget, in the drafter's own order.

        Args:
            num_nodes: Most nodes to keep; the first ones, so parents stay with their children.
            max_depth: Deepest level to keep.
        """
        if len(self) <= num_nodes and self.max_depth <= max_depth:
            return self
        kept = [node for node, depth in enumerate(self.depths) if depth <= max_depth][:num_nodes]
        return self.selected(kept)

    def below(self, node: int) -> DraftTree:
        """Returns the subtree whose root is a node, confidences taken as given that node.

        Args:
            node: Index of a node; it becomes the root, which is not stored.
        """
        kept: list[int] = []
        inside = {node}
        for child, parent in enumerate(self.parents):
            if parent in inside:
                inside.add(child)
                kept.append(child)
        renamed = {node: ROOT, **{old: new for new, old in enumerate(kept)}}
        above = self.confidences[node] if self.confidences else 0.0
        return DraftTree(
            tuple(self.token_ids[child] for child in kept),
            tuple(renamed[self.parents[child]] for child in kept),
            tuple(self.confidences[child] / above for child in kept) if above else (),
            tuple(self.origins[child] for child in kept) if self.origins else (),
            domain=self.domain,
        )

    def selected(self, nodes: Sequence[int]) -> DraftTree:
        """Returns the tree of these nodes, in this order.

        Args:
            nodes: Different nodes, each behind its parent, which must be among them.
        """
        renamed = {ROOT: ROOT, **{node: place for place, node in enumerate(nodes)}}
        return DraftTree(
            tuple(self.token_ids[node] for node in nodes),
            tuple(renamed[self.parents[node]] for node in nodes),
            tuple(self.confidences[node] for node in nodes) if self.confidences else (),
            tuple(self.origins[node] for node in nodes) if self.origins else (),
            None if self.draft_probs is None else self.draft_probs[list(nodes)],
            self.domain,
        )


def likeliest_chain(tree: DraftTree) -> DraftTree:
    """Returns the path from the root to a leaf, always the likeliest child; of equals the first.

    Args:
        tree: A draft.
    """
    path: list[int] = []
    node = ROOT
    while True:
        below = [i for i, parent in enumerate(tree.parents) if parent == node]
        if not below:
            return tree.selected(path)
        node = max(below, key=lambda i: (tree.confidences[i] if tree.confidences else 0.0, -i))
        path.append(node)


def pack(
    roots: Sequence[int],
    trees: Sequence[DraftTree],
    device: torch.device | None = None,
    width: int = 0,
) -> TreePass:
    """Lays one tree for each row side by side, root first, padded to the widest.

    Args:
        roots: The last committed token of each row.
        trees: The tree below it.
        device: Where the tensors go.
        width: Fewest nodes of the pass, root included.

    Returns:
        Tensors for ``batch`` rows and ``1 + max(len(tree))`` nodes; node ``i`` of a tree is node
        ``i + 1`` of the pass.
    """
    width = max(width, 1 + max(len(tree) for tree in trees))
    token_ids = torch.zeros(len(trees), width, dtype=torch.long)
    depths = torch.zeros(len(trees), width, dtype=torch.long)
    visible = torch.eye(width, dtype=torch.bool).repeat(len(trees), 1, 1)
    for row, (root, tree) in enumerate(zip(roots, trees, strict=True)):
        size = 1 + len(tree)
        token_ids[row, :size] = torch.tensor([root, *tree.token_ids])
        depths[row, :size] = torch.tensor([0, *tree.depths])
        for node, parent in enumerate(tree.parents, start=1):
            # A node sees what its parent sees, and itself: one row of the mask per node.
            visible[row, node] |= visible[row, parent + 1]
    return TreePass(token_ids.to(device), depths.to(device), visible.to(device))
