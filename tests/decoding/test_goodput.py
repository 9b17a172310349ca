"""The goodput policy: against enumeration, and over whole plays of good and bad drafters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.budget import DraftBudget, PassCosts, SpeculationConfig
from specrag.decoding.goodput import GoodputPolicy, best_first, worthwhile
from specrag.decoding.policy import num_accepted
from specrag.decoding.stats import DecodingStats
from specrag.decoding.tree import ROOT, DraftTree

CONFIG = SpeculationConfig(num_speculative_tokens=8, max_depth=6, branching=3)
FLAT = PassCosts((1, 16), (1.0, 1.15))
STEEP = PassCosts((1, 4, 8, 16, 32), (1.0, 1.1, 1.3, 2.0, 4.0))
TOLERANCE = 1.05  # a gain smaller than this may be left, as not worth the risk


@st.composite
def trees(draw: st.DrawFn, size: int = 7) -> DraftTree:
    """A tree with confidences that fall from parent to child."""
    edges: dict[tuple[int, int], None] = {}
    for _ in range(draw(st.integers(0, size))):
        edges.setdefault((draw(st.integers(ROOT, len(edges) - 1)), draw(st.integers(0, 4))))
    stated: list[float] = []
    for parent, _ in edges:
        above = 1.0 if parent == ROOT else stated[parent]
        stated.append(above * draw(st.floats(0.01, 0.99)))
    return DraftTree(tuple(t for _, t in edges), tuple(p for p, _ in edges), tuple(stated))


rising = st.lists(st.floats(0, 1), min_size=4, max_size=4).map(
    lambda steps: PassCosts((1, 2, 4, 8, 16), (1.0, *(1 + sum(steps[: i + 1]) for i in range(4))))
)


@given(st.lists(trees(), min_size=1, max_size=3), rising)
@settings(deadline=None)
def test_no_other_number_of_nodes_is_faster(drafts: list[DraftTree], costs: PassCosts) -> None:
    drafts = [best_first(tree, tree.confidences) for tree in drafts]

    def speed(num_nodes: int) -> float:
        expected = sum(1 + sum(tree.confidences[:num_nodes]) for tree in drafts)
        return expected / costs.of(len(drafts) * (1 + num_nodes))

    best = max(speed(size) for size in range(1 + max(map(len, drafts))))
    found = worthwhile(drafts, costs)
    assert speed(found) == pytest.approx(best) or (found == 0 and best <= TOLERANCE * speed(0))


@given(trees(), rising)
@settings(deadline=None)
def test_no_other_part_of_a_tree_is_faster(tree: DraftTree, costs: PassCosts) -> None:
    policy = GoodputPolicy(CONFIG, costs)
    policy.join()
    (sent,) = policy.chosen([0], [tree])
    # Without evidence the drafter's word stands, as far as it is possible at all.
    word = policy._rows[0].acceptance.calibrated(tree)

    def speed(nodes: Sequence[int]) -> float:
        return (1 + sum(word[node] for node in nodes)) / costs.of(1 + len(nodes))

    best = 0.0
    for picked in product([False, True], repeat=len(tree)):
        nodes = [node for node, taken in enumerate(picked) if taken]
        if all(tree.parents[node] in (ROOT, *nodes) for node in nodes):
            best = max(best, speed(nodes))
    paths = {tree_path(tree, node): node for node in range(len(tree))}
    found = speed([paths[tree_path(sent, node)] for node in range(len(sent))])
    assert found == pytest.approx(best) or (not len(sent) and best <= TOLERANCE * found)


def tree_path(tree: DraftTree, node: int) -> tuple[int, ...]:
    return tuple(tree.token_ids[n] for n in tree.path_to(node))


@given(trees(9))
def test_the_likeliest_nodes_come_first_and_the_tree_stays_the_same(tree: DraftTree) -> None:
    found = best_first(tree, tree.confidences)

    assert list(found.confidences) == sorted(tree.confidences, reverse=True)
    ours = {tree_path(found, node): found.confidences[node] for node in range(len(found))}
    assert ours == {tree_path(tree, node): tree.confidences[node] for node in range(len(tree))}


def test_equal_nodes_keep_the_order_of_the_drafter() -> None:
    tree = DraftTree.from_paths([[3, 4], [1], [2]])
    assert best_first(tree, [0.5] * 4) == tree


def test_nothing_is_sent_when_nothing_is_expected() -> None:
    assert worthwhile([DraftTree(), DraftTree()], STEEP) == 0
    assert worthwhile([DraftTree.chain([1, 2], [0.001, 0.0001])], STEEP) == 0


# Plays: the text is all ones, and a drafter is right for some tokens in each round.

Draft = Callable[[int, DraftBudget], DraftTree]


@dataclass
class Play:
    """What happened in each round of one row, and its counters."""

    budgets: list[DraftBudget] = field(default_factory=list)
    sent: list[DraftTree] = field(default_factory=list)
    stats: DecodingStats = field(default_factory=DecodingStats)

    @property
    def pauses(self) -> list[int]:
        """Lengths of the runs of rounds in which nothing was sent, the last one left out."""
        runs = "".join("x" if len(tree) else " " for tree in self.sent).split("x")
        return [len(run) for run in runs[:-1] if run]


def play(
    draft: Draft,
    costs: PassCosts,
    rounds: int,
    config: SpeculationConfig = CONFIG,
    num_rows: int = 1,
) -> list[Play]:
    policy = GoodputPolicy(config, costs)
    rows = list(range(num_rows))
    found = [Play() for _ in rows]
    for _ in rows:
        policy.join()
    for number in range(rounds):
        budgets = policy.budgets(rows)
        proposals = [
            draft(number, b).truncated(b.num_speculative_tokens, b.max_depth) for b in budgets
        ]
        sent = policy.chosen(rows, proposals)
        for row in rows:
            emitted = [1] * (1 + num_accepted(sent[row], [1] * 20))
            policy.record(row, proposals[row], sent[row], emitted, found[row].stats)
            found[row].budgets.append(budgets[row])
            found[row].sent.append(sent[row])
    return found


def drafter(right: Callable[[int], int], stated: float = 0.0) -> Draft:
    """Chains of which so many tokens are right in a round, with a constant confidence or none."""

    def draft(number: int, budget: DraftBudget) -> DraftTree:
        size = min(budget.max_depth, budget.num_speculative_tokens)
        good = min(size, right(number))
        confidences = [stated**depth for depth in range(1, size + 1)] if stated else []
        return DraftTree.chain([1] * good + [2] * (size - good), confidences)

    return draft


def geometric(share: float) -> Callable[[int], int]:
    """Lengths of runs as if each token were right with this probability, spread evenly."""

    def right(number: int) -> int:
        place, count = (number * 0.6180339887) % 1.0, 0
        while count < 20 and place < share ** (count + 1):
            count += 1
        return count

    return right


NEVER, ALWAYS = drafter(lambda _: 0, 0.9), drafter(lambda _: 20, 0.9)


@pytest.mark.parametrize("level", [0.0, 0.1])
def test_a_useless_drafter_is_switched_off_and_tried_again_ever_more_seldom(level: float) -> None:
    (found,) = play(NEVER, replace(FLAT, draft_level=level), 700)
    stats = found.stats

    assert stats.num_switched_off >= 3
    assert stats.num_switched_off - stats.num_probes in (0, 1)
    assert stats.num_off_passes > 0.5 * 700
    long = [run for run in found.pauses if run >= 16]
    assert long == sorted(long)
    assert long[0] < 32 <= long[-1]
    assert sum(len(tree) > 0 for tree in found.sent) < 0.25 * 700


@pytest.mark.parametrize("level", [0.0, 0.1])
def test_a_good_drafter_is_never_switched_off(level: float) -> None:
    (found,) = play(ALWAYS, replace(FLAT, draft_level=level), 100)

    assert found.stats.num_switched_off == 0
    assert found.sent[-1].max_depth == 6


@pytest.mark.parametrize("level", [0.0, 0.1])
def test_a_drafter_that_becomes_good_is_used_again(level: float) -> None:
    draft = drafter(lambda number: 20 if number > 200 else 0, 0.9)
    (found,) = play(draft, replace(FLAT, draft_level=level), 500)

    assert found.stats.num_switched_off > 0
    assert all(tree.max_depth >= 5 for tree in found.sent[-50:])


@pytest.mark.parametrize("level", [0.0, 0.5, 2.0])
def test_a_least_acceptance_of_zero_never_pauses(level: float) -> None:
    config = replace(CONFIG, min_acceptance=0.0)
    (found,) = play(NEVER, replace(STEEP, draft_level=level), 200, config)

    assert found.stats.num_switched_off == found.stats.num_off_passes == 0
    assert all(budget.max_depth for budget in found.budgets)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9])
def test_a_costly_drafter_drafts_only_as_deep_as_pays(share: float) -> None:
    depths = []
    for level in (0.02, 0.1, 0.5, 1.0):
        costs = replace(FLAT, draft_level=level)
        config = replace(CONFIG, branching=1)
        (found,) = play(drafter(geometric(share)), costs, 300, config)
        late = sorted(budget.max_depth for budget in found.budgets[100:])
        depths.append(late[len(late) // 2])

        def speed(depth: int, costs: PassCosts = costs) -> float:
            expected = sum(share**d for d in range(depth + 1))
            return expected / (costs.of(1 + depth) + depth * costs.draft_level)

        # The curve is flat around its top, and the evidence is of some twenty drafts.
        assert speed(depths[-1]) > 0.9 * max(speed(depth) for depth in range(7))
    assert depths == sorted(depths, reverse=True)
    assert depths[0] > depths[-1]


@pytest.mark.parametrize("costs", [STEEP, PassCosts((1, 32), (1.0, 8.0))])
def test_a_batch_speculates_less_than_a_single_row(costs: PassCosts) -> None:
    sizes = []
    for num_rows in (1, 4, 8):
        rows = play(drafter(geometric(0.7), 0.7), costs, 60, num_rows=num_rows)
        sizes.append(sum(len(tree) for row in rows for tree in row.sent) / num_rows)

    assert sizes[0] >= sizes[1] >= sizes[2]
    assert sizes[0] > sizes[2]


def test_the_same_play_gives_the_same_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    here = threading.get_ident()

    def no_clock(real: Callable[[], float]) -> float:
        # Threads of others, such as that of a progress bar, may go on asking.
        assert threading.get_ident() != here, "a policy asked for the time"
        return real()

    for name in ("time", "perf_counter", "monotonic"):
        monkeypatch.setattr(time, name, partial(no_clock, getattr(time, name)))
    first, second = (
        play(drafter(geometric(0.5), 0.6), replace(STEEP, draft_level=0.05), 150) for _ in range(2)
    )
    assert first == second


def test_what_is_not_sent_teaches_all_the_same() -> None:
    policy, stats = GoodputPolicy(CONFIG, PassCosts((1, 2), (1.0, 9.0))), DecodingStats()
    policy.join()
    tree = DraftTree.chain([1, 1], [0.5, 0.25])
    for _ in range(20):
        (sent,) = policy.chosen([0], [tree])
        assert not len(sent)
        policy.record(0, tree, sent, [1], stats)

    assert policy._rows[0].acceptance.rate(1, 0.5) > 0.8


def test_chains_drawn_at_random_are_never_cut_by_their_tokens() -> None:
    policy, stats = GoodputPolicy(CONFIG, STEEP), DecodingStats()
    for _ in range(2):
        policy.join()
    drawn = DraftTree.chain([1, 2, 3], [1e-3, 1e-6, 1e-9])
    drawn = replace(drawn, draft_probs=torch.full((3, 4), 0.25))
    other = DraftTree.chain([2], [0.9])
    assert policy.chosen([0, 1], [drawn, other])[0] is drawn

    # A pause follows from earlier rounds, so it may leave the whole chain out.
    for _ in range(200):
        (sent,) = policy.chosen([0], [drawn])
        assert len(sent) in (0, 3)
        policy.record(0, drawn, sent, [0], stats)
        if stats.num_off_passes == 3:
            break
    assert stats.num_switched_off == 1
    assert len(policy.chosen([0, 1], [drawn, other])[0]) == 0


def test_a_paused_row_leaves_the_pass_to_the_others() -> None:
    policy = GoodputPolicy(CONFIG, FLAT)
    for _ in range(2):
        policy.join()
    bad, good = DraftTree.chain([2] * 4, [0.9] * 4), DraftTree.chain([1] * 4, [0.9] * 4)
    stats = [DecodingStats(), DecodingStats()]
    for _ in range(60):
        sent = policy.chosen([0, 1], [bad, good])
        policy.record(0, bad, sent[0], [1], stats[0])
        policy.record(1, good, sent[1], [1] * (1 + len(sent[1])), stats[1])

    assert stats[0].num_off_passes > 10
    assert stats[1].num_switched_off == 0
    assert len(policy.chosen([0, 1], [bad, good])[1]) == 4
    assert len(policy.chosen([1], [good])[0]) == 4
