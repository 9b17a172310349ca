"""A run gives the same report however often it is killed; its modes are what the pipeline does."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specrag.decoding.sampling import SamplingParams
from specrag.errors import ConfigError, InputError
from specrag.evaluation.datasets.item import EvalDataset
from specrag.evaluation.qa.answers import ANSWERS_NAME
from specrag.evaluation.qa.run import ITEMS_NAME, QaRun, evaluate
from specrag.evaluation.qa.settings import QaSettings
from specrag.gate.policy import RetrievalGate
from specrag.rag.pipeline import Pipeline

SETTINGS = QaSettings(batch_size=2, seed=3)
TIMES = ("latency_ms", "tokens_per_second")


def without_times(run: QaRun) -> tuple[Any, ...]:
    """What must not depend on the clock."""
    figures = {name: value for name, value in run.report.figures.items() if name not in TIMES}
    records = [{k: v for k, v in row.items() if k != "latency_ms"} for row in run.records]
    return figures, records, run.report.configuration, run.notes


@pytest.fixture(scope="module")
def whole(
    make_pipeline: Callable[..., Pipeline],
    gate_of: Callable[[str], RetrievalGate],
    dataset: EvalDataset,
    tmp_path_factory: pytest.TempPathFactory,
) -> QaRun:
    pipeline = make_pipeline(gate=gate_of("needed"))
    return evaluate(pipeline, dataset, SETTINGS, tmp_path_factory.mktemp("whole"))


def killed_run(pipeline: Pipeline, dataset: EvalDataset, folder: Path, after_s: float) -> bool:
    """Runs in a process of its own that is killed; tells whether it had finished before."""
    child = os.fork()
    if not child:
        status = 1
        try:
            evaluate(pipeline, dataset, SETTINGS, folder)
            status = 0
        finally:
            os._exit(status)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the run failed by itself"
    return os.WIFEXITED(status)


def test_a_run_killed_at_ten_random_points_gives_the_same_report(
    make_pipeline: Callable[..., Pipeline],
    gate_of: Callable[[str], RetrievalGate],
    dataset: EvalDataset,
    whole: QaRun,
    tmp_path: Path,
) -> None:
    pipeline = make_pipeline(gate=gate_of("needed"))
    dice = random.Random(11)
    sizes = []
    for _ in range(10):
        killed_run(pipeline, dataset, tmp_path, dice.uniform(0.05, 0.6))
        answers = tmp_path / ANSWERS_NAME
        sizes.append(answers.stat().st_size if answers.exists() else 0)
    resumed = evaluate(pipeline, dataset, SETTINGS, tmp_path)
    assert without_times(resumed) == without_times(whole)
    assert sizes[0] < sizes[-1], "no process came as far as to write an answer"


@pytest.mark.parametrize("cut", [1, 40, 400, 2500, 6001])
def test_a_file_that_ends_anywhere_is_gone_on_from(
    make_pipeline: Callable[..., Pipeline],
    gate_of: Callable[[str], RetrievalGate],
    dataset: EvalDataset,
    whole: QaRun,
    tmp_path: Path,
    cut: int,
) -> None:
    pipeline = make_pipeline(gate=gate_of("needed"))
    evaluate(pipeline, dataset, SETTINGS, tmp_path)
    answers = tmp_path / ANSWERS_NAME
    answers.write_bytes(answers.read_bytes()[:-cut])
    assert without_times(evaluate(pipeline, dataset, SETTINGS, tmp_path)) == without_times(whole)


def test_what_is_done_is_not_done_again(
    make_pipeline: Callable[..., Pipeline], dataset: EvalDataset, tmp_path: Path
) -> None:
    pipeline = make_pipeline()
    evaluate(pipeline, dataset, SETTINGS, tmp_path)
    before = (tmp_path / ANSWERS_NAME).read_bytes()
    told: list[int] = []
    evaluate(pipeline, dataset, SETTINGS, tmp_path, on_progress=told.append)
    assert told == [len(dataset.items)]
    assert (tmp_path / ANSWERS_NAME).read_bytes() == before
    # Another way to judge or to decide shares the answers; another length does not.
    evaluate(pipeline, dataset, replace(SETTINGS, modes=("auto",)), tmp_path)
    with pytest.raises(ConfigError, match="another sampling"):
        evaluate(pipeline, dataset, replace(SETTINGS, max_tokens=5), tmp_path)
    part = replace(dataset, items=dataset.items[:3])
    with pytest.raises(ConfigError, match="another dataset, questions"):
        evaluate(pipeline, part, SETTINGS, tmp_path)
    evaluate(pipeline, dataset, replace(SETTINGS, max_tokens=5), tmp_path, restart=True)


def test_a_folder_in_use_or_foreign_is_refused(
    make_pipeline: Callable[..., Pipeline], dataset: EvalDataset, tmp_path: Path
) -> None:
    pipeline = make_pipeline()

    def again(_: int) -> None:
        evaluate(pipeline, dataset, SETTINGS, tmp_path)

    with pytest.raises(InputError, match="another run writes"):
        evaluate(pipeline, dataset, SETTINGS, tmp_path, on_progress=again)
    (tmp_path / "run.json").unlink()
    with pytest.raises(ConfigError, match="not what they are of"):
        evaluate(pipeline, dataset, SETTINGS, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        evaluate(pipeline, dataset, SETTINGS, tmp_path / "file" / "below")


@pytest.mark.parametrize("zone", ["confident", "needed", "unsure-used", "unsure-dropped"])
def test_modes_are_what_the_pipeline_answers(
    make_pipeline: Callable[..., Pipeline],
    gate_of: Callable[[str], RetrievalGate],
    dataset: EvalDataset,
    tmp_path: Path,
    zone: str,
) -> None:
    """One at a time the answers are the pipeline's own to the byte, mode auto included."""
    pipeline = make_pipeline(gate=gate_of(zone))
    run = evaluate(pipeline, dataset, QaSettings(batch_size=1), tmp_path)
    for record in run.records:
        asked = pipeline.ask(record["user_input"], mode=record["mode"])
        assert record["response"] == asked.text
        assert record["citations"] == [cited.to_dict() for cited in asked.citations]
        assert record["gate"] == asked.gate.to_dict()
        usage = {name: getattr(asked.usage, name) for name in record["usage"]}
        assert record["usage"] == usage


def test_batches_give_the_answers_of_single_questions(
    make_pipeline: Callable[..., Pipeline],
    gate_of: Callable[[str], RetrievalGate],
    dataset: EvalDataset,
    whole: QaRun,
    tmp_path: Path,
) -> None:
    pipeline = make_pipeline(gate=gate_of("needed"))
    single = evaluate(pipeline, dataset, replace(SETTINGS, batch_size=1), tmp_path)
    assert [row["response"] for row in single.records] == [row["response"] for row in whole.records]


def test_records_bear_the_names_that_evaluation_tools_read(
    whole: QaRun, dataset: EvalDataset
) -> None:
    assert len(whole.records) == 3 * len(dataset.items)
    for row in whole.records:
        assert isinstance(row["user_input"], str)
        assert isinstance(row["response"], str)
        assert row["reference"] in row["references"]
        assert len(row["retrieved_contexts"]) == len(row["retrieved_context_ids"])
        assert bool(row["retrieved_contexts"]) == (row["usage"]["context_tokens"] > 0)
    json.dumps(whole.records)


def test_figures_are_means_of_the_records(whole: QaRun) -> None:
    for mode, found in whole.report.figures["modes"].items():
        rows = [row for row in whole.records if row["mode"] == mode]
        for measure, figure in found.items():
            values = [row["scores"][measure] for row in rows if row["scores"][measure] is not None]
            assert figure["num_items"] == len(values)
            if values:
                assert figure["value"] == pytest.approx(sum(values) / len(values), abs=1e-6)
                assert figure["low"] <= figure["value"] <= figure["high"]
    assert set(whole.report.figures["categories"]) == {"odd", "even"}
    gate = whole.report.figures["gate"]
    for curve in gate["curves"].values():
        assert curve[0][1] == pytest.approx(gate["points"]["never"]["accuracy"]["value"])
        assert curve[-1][1] == pytest.approx(gate["points"]["always"]["accuracy"]["value"])


def test_closed_book_needs_no_index_and_open_book_says_that_it_does(
    make_pipeline: Callable[..., Pipeline], dataset: EvalDataset, tmp_path: Path
) -> None:
    pipeline = make_pipeline(retriever=None)
    run = evaluate(pipeline, dataset, QaSettings(("never",)), tmp_path / "never")
    assert list(run.report.figures["modes"]) == ["never"]
    assert run.report.figures["gate"] is None
    with pytest.raises(ConfigError, match="has no index"):
        evaluate(pipeline, dataset, QaSettings(("always",)), tmp_path / "always")


def test_a_gate_is_fitted_out_of_fold_or_the_run_says_why_not(
    make_pipeline: Callable[..., Pipeline], dataset: EvalDataset, tmp_path: Path
) -> None:
    pipeline = make_pipeline()
    few = evaluate(pipeline, dataset, replace(SETTINGS, cross_fit=True), tmp_path / "few")
    assert any("no gate could be fitted" in note for note in few.notes)
    # Half of the questions ask for what the toy target says anyway, so closed book is right there.
    never = {row["id"]: row["response"] for row in few.records if row["mode"] == "never"}
    items = [
        replace(item, id=f"{item.id}-{n}", answers=(never[item.id] if n % 2 else "nothing",))
        for item in dataset.items[:-1]
        for n in range(6)
    ]
    many = replace(dataset, items=tuple(items))
    run = evaluate(pipeline, many, replace(SETTINGS, cross_fit=True), tmp_path / "many")
    assert "the gate was fitted on this run, out of fold" in run.notes
    decided = [row for row in run.records if row["mode"] == "auto"]
    assert all(row["gate"]["p_without"] is not None for row in decided)
    assert "gate" in run.report.figures["gate"]["curves"]


def test_sampling_is_the_same_for_a_seed(
    make_pipeline: Callable[..., Pipeline], dataset: EvalDataset, tmp_path: Path
) -> None:
    pipeline = make_pipeline(params=SamplingParams(temperature=1.0, max_tokens=12))
    texts = []
    for number, seed in enumerate((1, 1, 2)):
        settings = replace(SETTINGS, seed=seed)
        run = evaluate(pipeline, dataset, settings, tmp_path / str(number))
        texts.append([row["response"] for row in run.records])
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"modes": ()}, "no mode"),
        ({"modes": ("never", "alwais")}, "did you mean 'always'"),
        ({"modes": ("never", "never")}, "twice"),
        ({"batch_size": 0}, "at least 1"),
        ({"k": 0}, "at least 1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        QaSettings(**settings)


def test_items_are_written_as_lines(
    make_pipeline: Callable[..., Pipeline], dataset: EvalDataset, tmp_path: Path
) -> None:
    run = evaluate(make_pipeline(), dataset, SETTINGS, tmp_path)
    lines = (tmp_path / ITEMS_NAME).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == list(run.records)


def test_only_short_answers_are_looked_for_in_passages(
    make_pipeline: Callable[..., Pipeline], dataset: EvalDataset, tmp_path: Path
) -> None:
    items = tuple(replace(item, answers=("no",), choices=("yes", "no")) for item in dataset.items)
    chosen = replace(dataset, items=items, task="choice")
    run = evaluate(make_pipeline(), chosen, SETTINGS, tmp_path)
    found = run.report.figures["modes"]["always"]
    assert found["answer_in_context"]["num_items"] == found["citation_recall"]["num_items"] == 0
    assert found["retrieval_recall"]["num_items"] == len(items)
