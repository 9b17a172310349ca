"""A whole benchmark over a toy target: what is loaded, opened, closed and reported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.drafter import Drafter
from specrag.decoding.generator import SpeculativeGenerator
from specrag.errors import ConfigError, ModelError, SpecragError
from specrag.evaluation.datasets.item import EvalDataset, EvalItem
from specrag.evaluation.reports.report import load_report
from specrag.evaluation.speed.arm import Arm
from specrag.evaluation.speed.benchmark import SpeedSettings, benchmark
from specrag.models.tiny import tiny_target, tiny_tokenizer
from tests.evaluation.speed.scripted import ScriptedArm

TEXTS = ("abc abc abc abc", "hello hello hello", "x y z")
DATASET = EvalDataset(
    "toys", "plain", "toys.jsonl", "0" * 64, "open",
    tuple(EvalItem(str(i), text, category="ab"[i % 2]) for i, text in enumerate(TEXTS)),
)  # fmt: skip
SETTINGS = SpeedSettings(
    model="tiny", drafters=("suffix", "prompt_lookup"), max_tokens=24, rounds=1, warm_ups=0
)


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was loaded: a toy target in any case."""
    names: list[str] = []

    def tiny(
        model: str, drafter: Drafter, *, dtype: str, quantization: str, config: SpeculationConfig
    ) -> SpeculativeGenerator:
        names.append(f"{model} {drafter.name} {dtype} {quantization}")
        return SpeculativeGenerator(tiny_target(1), tiny_tokenizer(), drafter, config)

    monkeypatch.setattr(SpeculativeGenerator, "from_pretrained", tiny)
    return names


def rows_of(settings: SpeedSettings = SETTINGS, **options: Any) -> dict[tuple[str, str], Any]:
    rows = benchmark(settings, [DATASET], **options).figures["results"]
    return {(row["category"], row["drafter"]): row for row in rows}


def test_every_drafter_is_lossless_and_drafts() -> None:
    rows = rows_of()
    arms = ("none", "suffix", "prompt_lookup")
    assert list(rows) == [(category, arm) for category in ("toys", "all") for arm in arms]
    assert {row["equal_share"] for row in rows.values()} == {1.0}
    assert {row["num_tokens"] for row in rows.values()} == {rows["all", "none"]["num_tokens"]}
    assert rows["all", "none"]["mean_acceptance_length"] == 1.0
    assert rows["all", "suffix"]["mean_acceptance_length"] > 1.0
    assert rows["all", "suffix"]["details"]["dtype"] == "float32"


def test_drafters_are_measured_with_settings_of_their_own() -> None:
    lines = ("suffix", "suffix num_speculative_tokens=1 policy=fixed")
    rows = rows_of(replace(SETTINGS, drafters=lines))
    assert rows["all", lines[1]]["equal_share"] == 1.0
    deep, short = (rows["all", line]["acceptance_by_depth"] for line in lines)
    assert len(short) == 1 < len(deep)


def test_all_arms_draw_alike_at_a_temperature() -> None:
    greedy, drawn, again = (
        rows_of(replace(SETTINGS, temperature=temperature, seed=3))
        for temperature in (0.0, 1.5, 1.5)
    )
    assert {row["equal_share"] for row in drawn.values()} == {1.0}
    tau = [rows["all", "suffix"]["mean_acceptance_length"] for rows in (greedy, drawn, again)]
    assert tau[0] != tau[1] == tau[2]


def test_the_report_tells_what_it_takes_to_repeat_it(tmp_path: Path) -> None:
    settings = replace(SETTINGS, by="category", seed=7, per_category=1)
    report = benchmark(settings, [DATASET])
    told = report.configuration
    assert (report.kind, report.seed) == ("speed", 7)
    assert report.title == "Speed of tiny-1: none, suffix, prompt_lookup"
    assert told["datasets"][0]["sha256"] == "0" * 64
    assert told["speculation"]["policy"] == "goodput"
    assert told["threads"] == report.machine["threads"]
    assert (told["dtype"], told["device"], told["max_tokens"]) == ("float32", "cpu", 24)
    assert {row["category"] for row in report.figures["results"]} == {"a", "b", "all"}
    report.save(tmp_path / "report.json")
    kept = load_report(tmp_path)
    assert kept.to_dict() == json.loads(json.dumps(report.to_dict()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drafters": ("suffix", "sufix")}, "did you mean 'suffix'"),
        ({"drafters": ("suffix", "suffix")}, "'suffix' is named twice"),
        ({"drafters": ("suffix brancing=1",)}, "did you mean 'branching'"),
        ({"by": "kind"}, "unknown way to group"),
        (
            {"peers": ("a",), "temperature": 0.5},
            "peers decode greedily, and the temperature is 0.5",
        ),
        ({"categories": ("c",)}, "no category 'c'"),
    ],
)
def test_what_is_wrong_is_said_before_the_target_is_loaded(
    change: dict[str, Any], message: str, loaded: list[str]
) -> None:
    with pytest.raises(SpecragError, match=message):
        benchmark(replace(SETTINGS, **change), [DATASET])
    assert loaded == []


def test_more_threads_than_there_are_processors_are_refused(loaded: list[str]) -> None:
    with pytest.raises(ConfigError, match="processors"):
        benchmark(replace(SETTINGS, threads=10**6), [DATASET])
    assert loaded == []


def test_the_target_is_loaded_once_with_a_drafter_that_asks_for_costs(loaded: list[str]) -> None:
    rows_of(replace(SETTINGS, drafters=("none", "prompt_lookup", "suffix")))
    assert loaded == ["tiny prompt_lookup auto auto"]


def test_plain_decoding_alone_is_measured_too() -> None:
    assert set(rows_of(replace(SETTINGS, drafters=("none",)))) == {
        ("toys", "none"),
        ("all", "none"),
    }


class Peers:
    """Opens scripted engines, one of which may fail, and remembers them."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.opened: dict[str, ScriptedArm] = {}
        self._fails_at = fails_at

    def __call__(self, name: str, threads: int) -> Arm:
        if name == "broken":
            raise ModelError("the engine is not installed")
        self.threads = threads
        self.opened[name] = ScriptedArm(name, own=False, fails_at=self._fails_at)
        return self.opened[name]


def test_peers_are_measured_beside_and_closed() -> None:
    peers = Peers()
    rows = rows_of(replace(SETTINGS, peers=("one", "two"), threads=1), open_peer=peers)
    assert {arm for _, arm in rows} == {"none", "suffix", "prompt_lookup", "one", "two"}
    assert rows["all", "one"]["equal_share"] == 0.0
    assert rows["all", "one"]["num_tokens"] == rows["all", "none"]["num_tokens"]
    assert rows["all", "one"]["first_differences"][0]["margin"] > 0
    assert peers.threads == 1
    assert all(arm.closed for arm in peers.opened.values())


def test_a_peer_that_cannot_be_opened_ends_it_and_closes_the_others() -> None:
    peers = Peers()
    with pytest.raises(ModelError, match="not installed"):
        rows_of(replace(SETTINGS, peers=("one", "broken")), open_peer=peers)
    assert peers.opened["one"].closed


def test_a_peer_that_fails_on_the_way_is_told() -> None:
    settings = replace(SETTINGS, peers=("one",))
    report = benchmark(settings, [DATASET], open_peer=Peers(fails_at=1))
    assert [failure["arm"] for failure in report.figures["failed"]] == ["one"]
    assert report.figures["results"]


def test_an_interrupt_closes_what_was_opened() -> None:
    peers = Peers()

    def interrupt(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rows_of(replace(SETTINGS, peers=("one",)), open_peer=peers, on_progress=interrupt)
    assert peers.opened["one"].closed


def test_questions_too_long_for_the_target_are_left_out() -> None:
    longer = replace(DATASET, items=(*DATASET.items, EvalItem("long", "abc " * 200)))
    report = benchmark(SETTINGS, [longer])
    assert report.figures["left_out"] == ["long"]
