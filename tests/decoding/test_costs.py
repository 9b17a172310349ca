"""What a pass costs: interpolation, what is worth drafting, and the figures kept on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from specrag.decoding import costs as costs_module
from specrag.decoding.budget import PassCosts, SpeculationConfig
from specrag.decoding.costs import costs_of, known_costs, known_draft_level, measure_costs
from specrag.decoding.drafter import named_drafter
from specrag.decoding.level import SIZES, ModelLevel
from specrag.models.target import TargetModel
from specrag.models.tiny import tiny_target, tiny_tokenizer
from tests.decoding.scripts import SilentDrafter

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
    # The module's own clock: other threads go on asking the real one.
    clocks = SimpleNamespace(perf_counter=lambda: next(ticks), monotonic=lambda: 0.0)
    monkeypatch.setattr(costs_module, "time", clocks)
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


def test_a_draft_level_is_a_pass_of_the_draft_model_on_the_scale_of_the_target(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, model = tiny_target(), tiny_target(seed=1)
    monkeypatch.setattr(costs_module, "_fastest", lambda actions: [0.02, 0.005])
    assert known_draft_level(target, ModelLevel(model)) == 0.25
    # Kept, for this pair in this order.
    monkeypatch.setattr(costs_module, "_fastest", lambda actions: [0.01, 0.03])
    assert known_draft_level(target, ModelLevel(model)) == 0.25
    assert known_draft_level(model, ModelLevel(target)) == 3.0


def test_costs_know_the_model_that_a_drafter_runs_once_it_is_bound(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WithModel(SilentDrafter):
        def bind(self, target: TargetModel, *rest: object) -> None:
            self.levels = (ModelLevel(tiny_target(seed=1)),)

    monkeypatch.setattr(costs_module, "measure_costs", lambda target: COSTS)
    monkeypatch.setattr(costs_module, "_fastest", lambda actions: [0.02, 0.01])
    target, tokenizer = tiny_target(), tiny_tokenizer()

    assert costs_of(target, tokenizer, SilentDrafter()) == COSTS
    found = costs_of(target, tokenizer, WithModel())
    assert found is not None
    assert found == PassCosts(COSTS.num_nodes, COSTS.relative, 0.5)


def test_nothing_is_measured_where_nothing_is_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs_module, "measure_costs", lambda target: pytest.fail("measured"))
    target = tiny_target()
    target.no_speculation = "it cannot look back"

    assert costs_of(target, tiny_tokenizer(), SilentDrafter()) is None


def test_measuring_really_runs_passes_and_leaves_no_trace() -> None:
    target = tiny_target(max_context=40)
    found = measure_costs(target)

    # Sizes that leave room for a context.
    assert found.num_nodes == (1, 2, 4, 8, 16)
    assert found.relative[0] == 1.0
    assert list(found.relative) == sorted(found.relative)


@pytest.mark.parametrize(
    ("drafter", "config"),
    [
        ("none", SpeculationConfig()),
        ("suffix", SpeculationConfig(policy="fixed")),
        ("suffix", SpeculationConfig(policy="recent_acceptance")),
        ("suffix", SpeculationConfig(0)),
    ],
)
def test_nothing_is_measured_that_nobody_asks_for(
    drafter: str, config: SpeculationConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs_module, "measure_costs", lambda target: pytest.fail("measured"))

    assert costs_of(tiny_target(), tiny_tokenizer(), named_drafter(drafter), config) is None


def test_slow_passes_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = iter(range(0, 90000, 3600))
    clocks = SimpleNamespace(perf_counter=lambda: 0.0, monotonic=lambda: next(hours))
    monkeypatch.setattr(costs_module, "time", clocks)
    calls = []
    costs_module._fastest([lambda: calls.append(1), lambda: calls.append(2)])

    assert calls == [1, 2]
