"""Pass costs from this machine, a file, or typed figures."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specrag.decoding.budget import PassCosts
from specrag.errors import ConfigError
from specrag.evaluation import cost_table as module
from specrag.evaluation.cost_table import measured_costs, read_costs
from specrag.models.embedded import ModelSource

COSTS = PassCosts((1, 2, 4), (1.0, 1.2, 1.5))


def of(spec: str) -> PassCosts | None:
    return read_costs(spec, "not loaded").costs


def test_flat_costs_are_no_table() -> None:
    assert of("flat") is None


def test_typed_pairs_may_be_times() -> None:
    assert of("1:1.0,2:1.2,4:1.5") == COSTS
    assert of("1:20, 2:24, 4:30") == COSTS


@pytest.mark.parametrize("wrap", [lambda table: table, lambda table: {"costs": table, "rows": []}])
def test_a_file_holds_a_kept_table_or_a_report(wrap: Any, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    table = {"num_nodes": [1, 2, 4], "relative": [1.0, 1.2, 1.5]}
    path.write_text(json.dumps(wrap(table)))
    read = read_costs(str(path), "not loaded")
    assert (read.costs, read.source) == (COSTS, "from costs.json")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mesured", "no such pass costs: 'mesured'"),
        ("gone.json", "no such pass costs"),
        ("1:2,3", "'3' in '1:2,3' is no pair"),
        ("1:one", "no pair"),
        ("2:1.0,4:1.5", "must rise from 1"),
        ("1:1,4:2,2:3", "must rise from 1"),
        ("1:1,1:2", "must rise from 1"),
        ("1:0,2:1", "above 0 and never fall"),
        ("1:2,2:1", "above 0 and never fall"),
        ("1:1,2:nan", "above 0 and never fall"),
        ("1:1,2:inf", "above 0 and never fall"),
    ],
)
def test_what_is_no_cost_is_refused(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        of(spec)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"num_nodes": 3, "relative": 4}', '{"num_nodes": [1, 2], "relative": [1]}'],
)
def test_a_file_without_costs_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="pass costs"):
        of(str(path))


@pytest.fixture
def loads(tmp_path: Path, isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A folder with a model, and the list of what was loaded from it."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    source = {"local": ModelSource(str(folder), None, "local")}
    loaded: list[str] = []

    def load_target(
        source: ModelSource, name: str, *, dtype: str, quantization: str
    ) -> SimpleNamespace:
        loaded.append(f"{name} {dtype}")
        return SimpleNamespace(no_speculation="it keeps a state" if name == "stateful" else "")

    monkeypatch.setattr(
        module, "resolve", lambda name: source.get(name) or ModelSource(name, None, name)
    )
    monkeypatch.setattr(module, "load_target", load_target)
    monkeypatch.setattr(module, "known_costs", lambda target: COSTS)
    return loaded


def test_a_model_is_loaded_only_the_first_time(loads: list[str]) -> None:
    first, second = (measured_costs("local", dtype="float32") for _ in range(2))
    assert (first.costs, second.costs, loads) == (COSTS, COSTS, ["local float32"])
    assert "model was loaded" in first.source
    assert second.source == "measured earlier: local, float32, this machine"


def test_another_precision_or_a_changed_file_loads_again(loads: list[str], tmp_path: Path) -> None:
    measured_costs("local", dtype="float32")
    measured_costs("local", dtype="bfloat16")
    (tmp_path / "model" / "config.json").write_text('{"changed": 1}')
    measured_costs("local", dtype="float32")
    assert loads == ["local float32", "local bfloat16", "local float32"]


def test_a_hub_name_may_change_and_is_always_loaded(loads: list[str]) -> None:
    said: list[str] = []
    for _ in range(2):
        measured_costs("some/model", on_load=lambda: said.append("loading"))
    assert loads == ["some/model auto"] * 2
    assert said == ["loading"] * 2


def test_a_damaged_file_is_written_anew(loads: list[str], isolated_home: Path) -> None:
    measured_costs("local")
    (kept,) = isolated_home.rglob("by_file/*.json")
    kept.write_text("{")
    assert measured_costs("local").costs == COSTS
    assert "earlier" in measured_costs("local").source
    assert len(loads) == 2


def test_a_home_that_cannot_be_written_to_does_no_harm(
    loads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECRAG_HOME", str(tmp_path / "file" / "home"))
    assert measured_costs("local").costs == COSTS


@pytest.mark.usefixtures("loads")
def test_a_target_that_cannot_verify_a_draft_has_no_costs() -> None:
    with pytest.raises(ConfigError, match="stateful decodes plainly.*: it keeps a state"):
        read_costs("measured", "stateful")
