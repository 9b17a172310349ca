"""What a pass costs: interpolation, what is worth drafting, and the figures kept on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrag.decoding import costs as costs_module
from specrag.decoding.budget import PassCosts, worthwhile
from specrag.decoding.costs import SIZES, known_costs, measure_costs
from specrag.decoding.tree import DraftTree
from specrag.models.tiny import tiny_target

COSTS = PassCosts((1, 2, 4, 8), (1.0, 1.2, 1.4, 2.4))


@pytest.mark.parametrize(
    ("num_nodes", "expected"),
    [(1, 1.0), (2, 1.2), (3, 1.3), (4, 1.4), (5, 1.65), (8, 2.4), (12, 3.4)],
)
def test_costs_lie_on_straight_lines_between_and_beyond_what_was_measured(
    num_nodes: int, expected: float
) -> None:
    assert COSTS.of(num_nodes) == pytest.approx(expected)


def test_a_single_measured_size_costs_the_same_everywhere() -> None:
    assert [PassCosts((1,), (1.0,)).of(size) for size in (1, 5)] == [1.0, 1.0]


falling = st.lists(st.floats(0.01, 0.99), max_size=6).map(lambda p: sorted(p, reverse=True))


@given(
    confidences=st.lists(falling, min_size=1, max_size=3),
    steps=st.lists(st.floats(0, 1), min_size=3, max_size=3),
)
def test_no_other_number_of_nodes_is_faster(
    confidences: list[list[float]], steps: list[float]
) -> None:
    trees = [DraftTree.chain(range(len(row)), row) for row in confidences]
    costs = PassCosts((1, 2, 4, 8), (1.0, *(1 + sum(steps[: i + 1]) for i in range(3))))

    def speed(num_nodes: int) -> float:
        expected = sum(1 + sum(row[:num_nodes]) for row in confidences)
        return expected / costs.of(len(trees) * (1 + num_nodes))

    longest = max(len(row) for row in confidences)
    chosen = worthwhile(trees, costs)
    assert 0 <= chosen <= longest
    assert speed(chosen) == pytest.approx(max(speed(n) for n in range(longest + 1)))


def test_nothing_is_drafted_when_nothing_is_expected() -> None:
    assert worthwhile([DraftTree(), DraftTree()], COSTS) == 0
    assert worthwhile([DraftTree.chain([1, 2], [0.01, 0.001])], COSTS) == 0


def test_measured_costs_never_fall_with_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    # Pass by pass: 5, 4, 6, 8, 7, 10 seconds, the first round slower than the others.
    durations = iter([20.0] * len(SIZES) + [5.0, 4.0, 6.0, 8.0, 7.0, 10.0] * 10)

    def clock() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += next(durations)
            yield now

    ticks = clock()
    monkeypatch.setattr("specrag.decoding.costs.time.perf_counter", lambda: next(ticks))
    found = measure_costs(tiny_target())

    assert found.num_nodes == SIZES
    assert found.relative == (1.0, 1.0, 1.2, 1.6, 1.6, 2.0)


@pytest.mark.parametrize("content", [None, "{", "{}", "[]", '{"num_nodes": 3, "relative": 4}'])
def test_costs_are_kept_and_measured_anew_when_unreadable(
    content: str | None, isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs_module, "measure_costs", lambda target: COSTS)
    target = tiny_target()
    assert known_costs(target) == COSTS
    (file,) = isolated_home.rglob("*.json")
    file.unlink() if content is None else file.write_text(content)

    assert known_costs(target) == COSTS
    monkeypatch.setattr(costs_module, "measure_costs", lambda target: pytest.fail("was known"))
    assert known_costs(target) == COSTS
    assert list(isolated_home.rglob("*.json")) == [file]


def test_costs_belong_to_one_model_and_precision(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs_module, "measure_costs", lambda target: COSTS)
    targets = [tiny_target(), tiny_target(seed=1), tiny_target()]
    targets[2].model.bfloat16()
    for target in targets:
        known_costs(target)

    assert len(list(isolated_home.rglob("*.json"))) == 3


def test_a_home_that_cannot_be_written_to_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECRAG_HOME", str(tmp_path / "file" / "home"))
    monkeypatch.setattr(costs_module, "measure_costs", lambda target: COSTS)

    assert known_costs(tiny_target()) == COSTS
