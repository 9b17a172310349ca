"""Names, paths and ready parts become a pipeline; a calibration holds for one combination only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from specrag.errors import ConfigError, GateError, InputError
from specrag.gate.calibration import Calibration
from specrag.gate.policy import CalibratedGate, FixedGate
from specrag.models.embedded import DEFAULT_ENCODER
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.tokenizer import Tokenizer
from specrag.rag import named_indexes
from specrag.rag.build import SpecRAG, sampling_params
from specrag.rag.config import (
    AnswerConfig,
    GateConfig,
    PipelineConfig,
    RetrievalConfig,
    load_pipeline,
)
from specrag.rag.named_indexes import (
    build_named,
    docs_recipe,
    index_dir,
    named_recipe,
    open_named,
)
from specrag.retrieval.encoder import Encoder, HashingEncoder
from specrag.retrieval.recipe import load_recipe
from specrag.retrieval.retriever import IndexRetriever

QUESTION = "How long must bread bake?"
PARTS = ["target", "drafter", "speculation", "prompt", "draft_tokens", "index"]


@pytest.fixture
def encoders(monkeypatch: pytest.MonkeyPatch, isolated_home: Path) -> list[str]:
    """Replaces every encoder by hashing; the names that were asked for, in order."""
    names: list[str] = []

    def named(name: str) -> Encoder:
        names.append(name)
        return HashingEncoder(256)

    monkeypatch.setattr(named_indexes, "named_encoder", named)
    return names


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of two documents."""
    folder = tmp_path / "My Notes"
    folder.mkdir()
    (folder / "bread.md").write_text("# Bread\n\nBake the bread for forty minutes.\n")
    (folder / "ships.txt").write_text("The ship left the harbour at dawn.\n")
    return folder


@pytest.fixture(scope="session")
def model_folder(
    target: HuggingFaceTarget, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The toy target as a folder, loaded like any other model."""
    folder = tmp_path_factory.mktemp("models") / "toy"
    target.model.save_pretrained(folder)
    tokenizer.backend.save_pretrained(folder)
    return folder


@pytest.fixture
def pipeline_file(tmp_path: Path, model_folder: Path, notes: Path) -> Path:
    """A pipeline of the toy target over the notes."""
    folder = tmp_path / "definitions"
    folder.mkdir()
    (folder / "toy").symlink_to(model_folder)
    (folder / "recipe.toml").write_text(
        f'name = "notes"\ncorpus = "{notes}"\nencoder = "hashing"\nchunk_size = 50\n'
    )
    path = folder / "mine.toml"
    path.write_text(
        '[target]\nmodel = "./toy"\ndtype = "float32"\ndevice = "cpu"\n'
        '[retrieval]\nindex = "recipe.toml"\nk = 1\n'
        '[gate]\ndraft_tokens = 4\ncalibration = "gate.json"\n[answer]\nmax_tokens = 6\n'
    )
    return path


def calibrate(
    rag: SpecRAG, path: Path, auroc_low: float = 0.8, other: str | None = None
) -> Calibration:
    calibration = Calibration(
        fitted_on={**rag.fingerprints(), **({other: "x"} if other else {})},
        features=("margin",),
        mean=(0.0,),
        scale=(1.0,),
        weights=(0.0,),
        intercept=0.0,
        confident_above=0.4,  # every draft gets 0.5
        needed_below=0.3,
        min_score=0.0,
        num_labels=90,
        report={"auroc_low": auroc_low},
    )
    calibration.save(path)
    return calibration


def test_ready_parts_are_used_as_they_are(
    target: HuggingFaceTarget, tokenizer: Tokenizer, retriever: IndexRetriever
) -> None:
    gate = FixedGate(False, "A test says so.")
    config = PipelineConfig(
        name="ready",
        retrieval=RetrievalConfig(k=2),
        gate=GateConfig(mode="always", draft_tokens=5),
        answer=AnswerConfig(max_tokens=4, temperature=0.5, top_p=0.9, top_k=7),
    )
    rag = SpecRAG(
        target=target,
        tokenizer=tokenizer,
        drafter="none",
        index=retriever,
        gate=gate,
        config=config,
    )

    assert (rag.generator.target, rag.generator.tokenizer) == (target, tokenizer)
    assert (rag.retriever, rag.gate) == (retriever, gate)
    assert (rag.mode, rag.k, rag.draft_tokens, rag.name) == ("always", 2, 5, "ready")
    assert rag.params == sampling_params(config)
    assert (rag.params.max_tokens, rag.params.temperature) == (4, 0.5)
    assert (rag.params.top_p, rag.params.top_k) == (0.9, 7)
    answer = rag.ask(QUESTION)
    assert (answer.drafter, answer.pipeline, answer.index) == ("none", "ready", "four")
    assert answer.usage.completion_tokens <= 4


def test_a_definition_without_an_index_answers_without_documents(
    pipeline_file: Path, encoders: list[str]
) -> None:
    text = pipeline_file.read_text().replace('index = "recipe.toml"', 'index = ""')
    pipeline_file.write_text(text.replace('calibration = "gate.json"', ""))
    rag = SpecRAG.load(str(pipeline_file))
    assert (rag.retriever, encoders) == (None, [])
    answer = rag.ask(QUESTION)
    assert (answer.gate.retrieve, answer.usage.lookups, answer.index) == (False, 0, "")
    assert answer.gate.reason == "There is no index, so nothing was looked up."


def test_documents_can_be_given_to_a_definition_without_an_index(
    pipeline_file: Path, notes: Path, encoders: list[str]
) -> None:
    text = pipeline_file.read_text().replace('index = "recipe.toml"', 'index = ""')
    pipeline_file.write_text(text.replace('calibration = "gate.json"', ""))
    answer = SpecRAG.load(str(pipeline_file), docs=notes).ask(QUESTION, mode="always")
    assert answer.citations[0].document == "bread.md"


def test_without_an_index_there_are_no_documents(
    target: HuggingFaceTarget, tokenizer: Tokenizer
) -> None:
    rag = SpecRAG(target=target, tokenizer=tokenizer, drafter="none")
    assert rag.retriever is None
    assert rag.fingerprints()["index"] == ""


def test_a_loaded_target_needs_its_tokenizer(target: HuggingFaceTarget) -> None:
    with pytest.raises(ConfigError, match="needs its tokenizer") as caught:
        SpecRAG(target=target)
    assert caught.value.hint == "pass tokenizer=..."


@pytest.mark.parametrize("name", ["sufix", "none2"])
def test_an_unknown_drafter_is_refused(
    target: HuggingFaceTarget, tokenizer: Tokenizer, name: str
) -> None:
    with pytest.raises(ConfigError, match=f"unknown drafter {name!r}; did you mean"):
        SpecRAG(target=target, tokenizer=tokenizer, drafter=name)


def test_an_unknown_pipeline_is_refused_before_anything_is_loaded(encoders: list[str]) -> None:
    with pytest.raises(ConfigError, match="did you mean 'qa'"):
        SpecRAG.load("qaa")
    assert encoders == []


def test_a_folder_and_a_file_of_documents_have_recipes(notes: Path) -> None:
    whole, single = docs_recipe(notes), docs_recipe(notes / "bread.md")
    assert (whole.corpus, single.corpus) == (notes, notes / "bread.md")
    assert whole.name.startswith("my-notes-")
    assert single.name.startswith("bread-")
    assert whole.encoder == single.encoder == DEFAULT_ENCODER
    assert docs_recipe(notes / ".." / "My Notes") == whole


def test_folders_of_the_same_name_have_indexes_of_their_own(tmp_path: Path) -> None:
    names = set()
    for folder in (tmp_path / "a" / "文档", tmp_path / "b" / "文档"):
        folder.mkdir(parents=True)
        names.add(docs_recipe(folder).name)
    assert len(names) == 2
    assert all(name.startswith("docs-") for name in names)


def test_missing_documents_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder or file .*nowhere") as caught:
        docs_recipe(tmp_path / "nowhere")
    assert caught.value.hint


def test_a_recipe_has_a_name_or_a_path(pipeline_file: Path, notes: Path) -> None:
    toml = pipeline_file.parent / "recipe.toml"
    assert named_recipe("handbook").name == "handbook"
    assert named_recipe(toml) == named_recipe(str(toml)) == load_recipe(toml)
    assert named_recipe(notes) == named_recipe(str(notes)) == docs_recipe(notes)


@pytest.mark.parametrize("text", ["./notes", "notes/", "../work/notes"])
def test_a_text_with_a_slash_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "work" / "notes").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    assert named_recipe(text).corpus == tmp_path / "work" / "notes"


def test_an_unknown_recipe_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'handbook'"):
        named_recipe("handbok")


def test_an_index_is_built_once_and_again_when_a_document_changes(
    encoders: list[str], isolated_home: Path, notes: Path
) -> None:
    recipe, first = build_named(notes)
    _, second = build_named(notes)
    assert (first.built, second.built) == (True, False)
    assert first.path.is_relative_to(isolated_home)
    assert index_dir(recipe.name).is_relative_to(isolated_home)
    assert second.index_version == first.index_version

    (notes / "bread.md").write_text("# Bread\n\nBake the bread for sixty minutes.\n")
    _, third = build_named(notes)
    assert third.built
    assert third.index_version != first.index_version
    assert build_named(notes, force=True)[1].built
    assert set(encoders) == {DEFAULT_ENCODER}


def test_opening_an_index_finds_what_changed(encoders: list[str], notes: Path) -> None:
    fingerprints, quotes = [], []
    for minutes in ("forty", "forty", "sixty"):
        (notes / "bread.md").write_text(f"# Bread\n\nBake the bread for {minutes} minutes.\n")
        retriever = open_named(notes)
        assert isinstance(retriever, IndexRetriever)
        fingerprints.append(retriever.fingerprint)
        quotes.append(retriever.retrieve(QUESTION, 1)[0].passage.text)
        retriever.close()
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    assert "forty" in quotes[1]
    assert "sixty" in quotes[2]


def test_a_folder_without_documents_is_refused(encoders: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no file in .*empty"):
        open_named(tmp_path / "empty")


def test_a_calibration_of_this_combination_decides(
    encoders: list[str], pipeline_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = pipeline_file.parent / "gate.json"
    pipeline_file.write_text(pipeline_file.read_text().replace('calibration = "gate.json"', ""))
    uncalibrated = SpecRAG.load(str(pipeline_file))
    assert isinstance(uncalibrated.gate, FixedGate)
    assert "No calibration is configured" in uncalibrated.ask(QUESTION).gate.reason
    assert list(uncalibrated.fingerprints()) == PARTS
    assert all(uncalibrated.fingerprints().values())
    calibration = calibrate(uncalibrated, path)

    pipeline_file.write_text(
        pipeline_file.read_text().replace("[gate]", '[gate]\ncalibration = "gate.json"')
    )
    monkeypatch.chdir(tmp_path)  # the paths in the file do not depend on it
    rag = SpecRAG.load("definitions/mine.toml")
    assert isinstance(rag.gate, CalibratedGate)
    answer = rag.ask(QUESTION)
    assert (answer.gate.zone, answer.usage.lookups) == ("confident", 0)
    assert answer.gate.fingerprint == calibration.fingerprint
    assert answer.pipeline == "mine"
    assert answer.index == "notes"
    assert encoders == ["hashing", "hashing"]


@pytest.mark.parametrize("part", PARTS)
def test_a_calibration_of_another_combination_is_not_used(
    encoders: list[str], pipeline_file: Path, part: str
) -> None:
    path = pipeline_file.parent / "gate.json"
    with pytest.raises(GateError, match="cannot read the calibration"):
        SpecRAG.load(str(pipeline_file))
    calibrate(SpecRAG.from_config(load_pipeline(str(pipeline_file))), path, other=part)
    rag = SpecRAG.load(str(pipeline_file))

    assert isinstance(rag.gate, FixedGate)
    answer = rag.ask(QUESTION)
    assert answer.gate.retrieve
    assert f"calibrated for another {part}, so" in answer.gate.reason
    assert "specrag gate calibrate" in answer.gate.reason
    assert answer.gate.fingerprint == ""


@pytest.mark.parametrize(("auroc_low", "is_used"), [(0.5, False), (0.51, True)])
def test_a_calibration_no_better_than_chance_is_not_used(
    encoders: list[str], pipeline_file: Path, auroc_low: float, is_used: bool
) -> None:
    rag = SpecRAG.from_config(load_pipeline(str(pipeline_file)))
    calibrate(rag, pipeline_file.parent / "gate.json", auroc_low)
    gate = SpecRAG.load(str(pipeline_file)).gate
    assert isinstance(gate, CalibratedGate if is_used else FixedGate)
    if not is_used:
        decision = gate.decide(None)
        assert decision.retrieve
        assert "no better than chance" in decision.reason


def test_documents_of_the_user_replace_the_index(
    encoders: list[str], pipeline_file: Path, notes: Path
) -> None:
    path = pipeline_file.parent / "gate.json"
    config = load_pipeline(str(pipeline_file))
    calibrate(SpecRAG.from_config(config), path)
    rag = SpecRAG.load(str(pipeline_file), docs=notes / "ships.txt")
    answer = rag.ask("When did the ship leave?")

    assert answer.index.startswith("ships-")
    assert [citation.document for citation in answer.citations] == ["ships.txt"]
    assert "calibrated for another index, so" in answer.gate.reason


FINGERPRINTED: dict[str, Callable[[str], str]] = {
    "drafter": lambda text: text + '[drafter]\nname = "none"\n',
    "prompt": lambda text: text + '[prompt]\nsystem = "Be kind."\n',
    "draft_tokens": lambda text: text.replace("draft_tokens = 4", "draft_tokens = 5"),
}


@pytest.mark.parametrize("part", FINGERPRINTED)
def test_a_change_of_the_pipeline_changes_its_fingerprint(
    encoders: list[str], pipeline_file: Path, part: str
) -> None:
    before = SpecRAG.from_config(load_pipeline(str(pipeline_file))).fingerprints()
    pipeline_file.write_text(FINGERPRINTED[part](pipeline_file.read_text()))
    after = SpecRAG.from_config(load_pipeline(str(pipeline_file))).fingerprints()
    assert [name for name in PARTS if before[name] != after[name]] == [part]
