"""A whole run on toy models: what is measured is what the pipeline would decode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specrag.errors import ConfigError
from specrag.evaluation.tuning import run as module
from specrag.evaluation.tuning.candidate import Candidate
from specrag.evaluation.tuning.prompts import PromptSource, read_prompts
from specrag.evaluation.tuning.run import DRAFTERS, TuneSettings, drafters_to_try, tune
from specrag.models.tiny import tiny_target, tiny_tokenizer
from specrag.rag.build import SpecRAG
from specrag.rag.config import (
    DrafterConfig,
    GateConfig,
    PipelineConfig,
    PromptConfig,
    RetrievalConfig,
    TargetConfig,
)


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of toy models, the target's and the draft's."""
    folder = tmp_path_factory.mktemp("toys")
    for name, seed in (("target", 5), ("draft", 6)):
        tiny_target(seed, vocab_size=80, max_context=1024).model.save_pretrained(folder / name)
        tiny_tokenizer(80).backend.save_pretrained(folder / name)
    return folder


@pytest.fixture
def pipeline(toys: Path, isolated_home: Path) -> PipelineConfig:
    return PipelineConfig(
        "toy",
        target=TargetConfig(str(toys / "target"), "float32", "cpu"),
        drafter=DrafterConfig(num_speculative_tokens=7, min_acceptance=0.3),
        retrieval=RetrievalConfig(index=""),
        gate=GateConfig(mode="never"),
    )


@pytest.fixture
def source(tmp_path: Path) -> PromptSource:
    path = tmp_path / "mine.txt"
    path.write_text("abc abc abc\nwhy is it so\nhow do you do\n", encoding="utf-8")
    return read_prompts(str(path))


@pytest.fixture
def quick(pipeline: PipelineConfig) -> TuneSettings:
    return TuneSettings(pipeline, ("suffix",), max_tokens=6, minutes=0.005, rounds=1)


def test_a_run_reports_all_that_it_found(
    quick: TuneSettings, source: PromptSource, toys: Path
) -> None:
    stages: list[str] = []
    names = ("suffix", f"suffix>draft:{toys / 'draft'}")
    report = tune(
        replace(quick, drafters=names),
        source,
        on_progress=lambda stage, done, total: stages.append(stage),
    )
    assert list(dict.fromkeys(stages)) == ["drafters", "settings", "finalists"]
    assert report.kind == "tuning"
    figures, configuration = report.figures, report.configuration
    assert (configuration["pipeline"], configuration["num_prompts"]) == ("toy", 3)
    assert configuration["prompts"] == source.name
    assert configuration["dtype"] == "float32"
    assert not configuration["with_passages"]
    assert {row["drafter"] for row in figures["drafters"]} == set(names)
    levels = {row["drafter"]: row["draft_level"] for row in figures["drafters"]}
    assert levels[names[0]] == 0
    assert levels[names[1]] > 0
    shape = {"num_nodes", "relative", "ms"}
    assert figures["costs"].keys() == shape
    assert len({len(figures["costs"][name]) for name in shape}) == 1
    columns = {
        "drafter", "num_speculative_tokens", "branching", "policy",
        "tokens_per_second", "speedup", "mean_acceptance_length",
    }  # fmt: skip
    assert all(row.keys() >= columns for row in (*figures["sweep"], *figures["finals"]))
    assert all(row["equal_share"] == 1 for row in figures["sweep"])
    limits = {r["num_speculative_tokens"] for r in figures["sweep"] if r["policy"] == "goodput"}
    assert limits == {7}
    assert figures["advice"]["reasons"]
    assert report.to_dict()["figures"]["advice"]["drafter"] in (*names, "none")


class Ended(Exception):
    """A run need not go on."""


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The prompts of a run, which then ends."""
    found: list[tuple[int, ...]] = []

    def race(*args: object, **options: object) -> None:
        prompts = args[2]
        assert isinstance(prompts, list)
        found.extend(prompt.token_ids for prompt in prompts)
        raise Ended

    monkeypatch.setattr(module, "Race", race)
    return found


def test_prompts_are_written_as_the_pipeline_writes_them(
    quick: TuneSettings, source: PromptSource, encoded: list[tuple[int, ...]]
) -> None:
    prompt = PromptConfig("Be brief.", without_passages="Q: {question}")
    settings = replace(quick, pipeline=replace(quick.pipeline, prompt=prompt))
    with pytest.raises(Ended):
        tune(settings, source)
    text = tiny_tokenizer(80).backend.decode(encoded[0])
    assert text == "<s>Be brief.<u>Q: abc abc abc<a>"


def test_a_pipeline_with_documents_is_tuned_with_its_passages(
    quick: TuneSettings,
    source: PromptSource,
    encoded: list[tuple[int, ...]],
    tiny_rag: SpecRAG,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[PipelineConfig] = []

    def from_config(config: PipelineConfig) -> SpecRAG:
        loaded.append(config)
        return tiny_rag

    monkeypatch.setattr(SpecRAG, "from_config", from_config)
    with pytest.raises(Ended):
        tune(quick, source)
    assert loaded[0].drafter.name == "none"
    question = source.questions[0].text
    assert tiny_rag.retriever is not None
    passages = tiny_rag.retriever.retrieve(question, tiny_rag.k)
    messages = tiny_rag.prompts.with_passages(question, passages).messages
    assert encoded[0] == tuple(tiny_rag.generator.prompt_ids(messages))


def test_each_arm_decodes_with_the_settings_that_its_name_says(
    pipeline: PipelineConfig, toys: Path
) -> None:
    rag = SpecRAG.from_config(pipeline)
    engine = module._Engine(rag.generator, pipeline)
    copying = [Candidate("suffix", 4, 1, policy) for policy in ("goodput", "fixed")]
    model = [Candidate(f"draft:{toys / 'draft'}", 4, 2, policy) for policy in ("goodput", "fixed")]
    made = [engine.open(candidate)._generator for candidate in (*copying, *model)]
    for candidate, generator in zip((*copying, *model), made, strict=True):
        config = generator.config
        assert (config.num_speculative_tokens, config.branching) == (4, candidate.branching)
        assert (config.policy, config.min_acceptance) == (candidate.policy, 0.3)
        # As the pipeline would: only goodput knows costs.
        assert (generator.costs is None) == (candidate.policy == "fixed")
    assert made[0].drafter is not made[1].drafter
    assert made[2].drafter is made[3].drafter  # a model is loaded once
    assert made[2].costs is not None
    assert made[2].costs.draft_level == engine.level(model[0].drafter)


def test_a_target_that_takes_no_drafts_is_refused(
    quick: TuneSettings, source: PromptSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    rag = SpecRAG.from_config(quick.pipeline)
    monkeypatch.setattr(
        type(rag.generator.target), "no_speculation", "it keeps a state", raising=False
    )
    with pytest.raises(ConfigError, match="nothing to tune: it keeps a state"):
        tune(quick, source)


def test_ours_come_with_a_warning(quick: TuneSettings) -> None:
    notes = tune(quick, read_prompts(None, count=2)).configuration["notes"]
    assert any("our own prompts" in note for note in notes)


def test_drafters_are_checked_and_named_once() -> None:
    assert drafters_to_try(()) == DRAFTERS
    assert drafters_to_try(("suffix", "none", "suffix")) == ("suffix",)
    assert drafters_to_try(("suffix",), "m") == (
        "suffix", "draft:m", "suffix+draft:m", "suffix>draft:m",
    )  # fmt: skip
    with pytest.raises(ConfigError, match="no drafter to tune"):
        drafters_to_try(("none",))
    with pytest.raises(ConfigError, match="did you mean 'suffix'"):
        drafters_to_try(("sufix",))
