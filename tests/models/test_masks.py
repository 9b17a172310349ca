"""Masks against an oracle that follows each path node by node."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.models.masks import additive, visible_slots


def slots_seen(length: int, parents: list[int], node: int, window: int | None) -> set[int]:
    """Slots that a node of a tree sees: itself, its ancestors, the tokens before the tree."""
    path = [node]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    backwards = [length + step for step in path] + list(range(length - 1, -1, -1))
    return set(backwards if window is None else backwards[:window])


@st.composite
def parents_of(draw: st.DrawFn) -> list[int]:
    size = draw(st.integers(1, 7))
    return [-1, *(draw(st.integers(0, node - 1)) for node in range(1, size))]


@given(
    rows=st.lists(st.tuples(st.integers(0, 9), parents_of()), min_size=1, max_size=3),
    window=st.none() | st.integers(1, 8),
    kept=st.integers(0, 3),
)
@settings(max_examples=150, deadline=None)
def test_a_node_sees_its_path_as_far_as_the_window(
    rows: list[tuple[int, list[int]]], window: int | None, kept: int
) -> None:
    pending = max(len(parents) for _, parents in rows)
    kept = min(kept, pending - 1)
    visible = torch.eye(pending, dtype=torch.bool).repeat(len(rows), 1, 1)
    depths = torch.zeros(len(rows), pending, dtype=torch.long)
    for row, (_, parents) in enumerate(rows):
        for node, parent in enumerate(parents[1:], start=1):
            visible[row, node] |= visible[row, parent]
            depths[row, node] = depths[row, parent] + 1
    lengths = [length for length, _ in rows]
    allowed = visible_slots(visible[:, kept:], depths[:, kept:], lengths, window)

    assert allowed.shape == (len(rows), pending - kept, max(lengths) + pending)
    assert bool(allowed.any(2).all())  # padding too: a row of nothing would be no numbers at all
    for row, (length, parents) in enumerate(rows):
        for node in range(kept, len(parents)):
            seen = set(allowed[row, node - kept].nonzero().flatten().tolist())
            assert seen == slots_seen(length, parents, node, window)


def test_what_is_not_allowed_gets_the_lowest_finite_score() -> None:
    mask = additive(torch.tensor([[[True, False]]]), torch.float16)

    assert mask.shape == (1, 1, 1, 2)
    assert mask.flatten().tolist() == [0.0, torch.finfo(torch.float16).min]
