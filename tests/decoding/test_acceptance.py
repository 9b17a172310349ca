"""What is learned of a drafter: its word is scaled by how often it came true, depth by depth."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.acceptance import DepthAcceptance, stated_conditionals
from specrag.decoding.tree import ROOT, DraftTree

tokens = st.integers(0, 4)
outputs = st.lists(tokens, max_size=5)


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    """Any tree, with confidences that keep to no rule, or without."""
    edges: dict[tuple[int, int], None] = {}
    for _ in range(draw(st.integers(0, 9))):
        edges.setdefault((draw(st.integers(ROOT, len(edges) - 1)), draw(tokens)))
    size = len(edges) if draw(st.booleans()) else 0
    stated = draw(st.lists(st.floats(0, 1), min_size=size, max_size=size))
    return DraftTree(tuple(t for _, t in edges), tuple(p for p, _ in edges), tuple(stated))


def learned(rounds: Sequence[tuple[DraftTree, Sequence[int]]]) -> DepthAcceptance:
    found = DepthAcceptance()
    for tree, emitted in rounds:
        found.record(tree, emitted)
    return found


@given(trees(), st.lists(st.tuples(trees(), outputs), max_size=12))
@settings(deadline=None, max_examples=100)
def test_calibrated_confidences_are_those_of_a_tree(
    tree: DraftTree, rounds: list[tuple[DraftTree, list[int]]]
) -> None:
    found = learned(rounds).calibrated(tree)

    assert len(found) == len(tree)
    below: dict[int, float] = {}
    for node, (parent, confidence) in enumerate(zip(tree.parents, found, strict=True)):
        above = 1.0 if parent == ROOT else found[parent]
        assert 0 <= confidence <= above, node
        below[parent] = below.get(parent, 0.0) + confidence
    for parent, total in below.items():
        assert total <= (1.0 if parent == ROOT else found[parent]) + 1e-9


@given(trees())
def test_without_evidence_the_word_of_an_honest_drafter_stands(tree: DraftTree) -> None:
    conditionals = stated_conditionals(tree)
    found = DepthAcceptance().calibrated(tree)
    sums = [
        sum(c for c, p in zip(conditionals, tree.parents, strict=True) if p == parent)
        for parent in (ROOT, *range(len(tree)))
    ]
    for node, value in enumerate(conditionals):
        path = [conditionals[n] for n in tree.path_to(node)]
        assert 0 <= value <= 1
        if max(sums) < 0.98:
            expected = 1.0
            for conditional in path:
                expected *= conditional
            assert found[node] == pytest.approx(expected)


def test_without_confidences_each_further_child_counts_half() -> None:
    tree = DraftTree((1, 2, 3, 4, 5), (ROOT, ROOT, 0, 0, ROOT))

    assert stated_conditionals(tree) == [0.5, 0.25, 0.5, 0.25, 0.125]


def test_stated_confidences_become_conditional_ones() -> None:
    tree = DraftTree((1, 2, 3, 4), (ROOT, 0, 1, ROOT), (0.8, 0.4, 0.0, 0.1))

    assert stated_conditionals(tree) == pytest.approx([0.8, 0.5, 0.0, 0.1])
    assert stated_conditionals(DraftTree.chain([1, 2], [0.0, 0.0])) == [0.0, 0.0]


def calibrated(stated: float, share: int, rounds: int = 60) -> float:
    """Confidence in a first token after so many rounds of ten in which it came true."""
    tree = DraftTree.chain([1], [stated])
    history = [(tree, [1 if number % 10 < share else 2]) for number in range(rounds)]
    return learned(history).calibrated(tree)[0]


@pytest.mark.parametrize(
    ("stated", "share"), [(0.95, 2), (0.9, 0), (0.1, 8), (0.05, 3), (0.5, 5), (0.9, 9)]
)
def test_a_boaster_is_trusted_less_and_a_timid_drafter_more(stated: float, share: int) -> None:
    found = calibrated(stated, share)

    # Nearer to the truth than its own word; the word of a truthful one stays about as it is.
    assert abs(found - share / 10) <= max(0.9 * abs(stated - share / 10), 0.1)
    assert stated >= share / 10 or found > 1.5 * stated


def test_more_evidence_weighs_more() -> None:
    found = [calibrated(0.9, 0, rounds) for rounds in (0, 1, 3, 10, 30)]

    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(0.9)
    assert found[-1] < 0.25


def test_depths_are_learned_one_by_one_and_only_as_far_as_the_text_agreed() -> None:
    tree = DraftTree.chain([1, 2, 3], [0.5, 0.25, 0.125])
    found = learned([(tree, [1, 9])] * 10)

    assert found.tested(1) == found.tested(2) > 5
    assert found.tested(3) == found.tested(99) == 0
    assert found.rate(1, 0.5) > 0.8
    assert found.rate(2, 0.5) < 0.2
    assert found.rate(3, 0.5) == 0.5
    first, second, third = found.calibrated(tree)
    assert first > 0.5
    assert second < 0.25 * first
    assert third == pytest.approx(0.5 * second)


def test_any_child_that_comes_true_is_a_success() -> None:
    tree = DraftTree.from_paths([[1], [2], [3, 4]])
    found = learned([(tree, [3, 4])] * 10)

    assert found.rate(1, 0.0) == pytest.approx(found.tested(1) / (found.tested(1) + 4.0))
    assert found.tested(2) == found.tested(1)


def test_a_text_that_ends_above_a_leaf_says_nothing_of_the_leaf() -> None:
    found = learned([(DraftTree.chain([1, 2]), [1])])

    assert (found.tested(1), found.tested(2)) == (1.0, 0.0)
    assert learned([(DraftTree(), [1, 2])]).tested(1) == 0.0


def test_evidence_fades_with_time_and_on_demand() -> None:
    tree = DraftTree.chain([1], [0.5])
    found = learned([(tree, [1])] * 100 + [(tree, [2])] * 40)
    assert found.rate(1, 0.5) < 0.2

    before = found.tested(1)
    found.fade(0.5)
    assert found.tested(1) == pytest.approx(before / 2)
    found.fade(0.0)
    assert found.rate(1, 0.7) == pytest.approx(0.7)
    assert found.calibrated(tree) == pytest.approx((0.5,))
