"""The documents of an index become a datastore of one model's tokens, which a drafter finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext
from specrag.drafters.datastore import DatastoreDrafter
from specrag.drafters.stores.file import datastores_dir, open_datastore, read_manifest
from specrag.drafters.stores.manifest import DatastoreOrigin
from specrag.errors import IndexFormatError, InputError, ModelError
from specrag.models.tiny import tiny_target, tiny_tokenizer
from specrag.rag.datastore import build_datastore
from specrag.rag.named_indexes import index_dir
from specrag.retrieval.build import build_index
from specrag.retrieval.builder_lock import builder_lock
from specrag.retrieval.encoder import HashingEncoder
from specrag.retrieval.generation import current_generation
from specrag.retrieval.layout import PASSAGES_NAME, SEGMENTS_NAME
from specrag.retrieval.recipe import IndexRecipe

TEXTS = {"bread.md": "bake the bread", "empty.md": "x", "ships.txt": "the ship left at dawn"}


def save_tokenizer(folder: Path, vocab_size: int) -> str:
    tiny_tokenizer(vocab_size).backend.save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    return str(folder)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A folder with the tokenizer of the toy model, and no weights."""
    return save_tokenizer(tmp_path / "toy", 64)


@pytest.fixture
def build(tmp_path: Path, isolated_home: Path) -> Callable[..., None]:
    """Builds the index `notes`, again with every call; the texts may be others."""

    def build(**texts: str) -> None:
        corpus = tmp_path / "corpus"
        corpus.mkdir(exist_ok=True)
        for name, text in {**TEXTS, **texts}.items():
            (corpus / name).write_text(text)
        build_index(
            IndexRecipe("notes", corpus, "any", chunk_size=20, chunk_overlap=0),
            HashingEncoder(),
            index_dir("notes"),
        )

    build()
    return build


def continued(text: str, vocab_size: int = 64) -> str:
    """What the drafter proposes after a text, for the toy model."""
    drafter, tokenizer = DatastoreDrafter.named("notes"), tiny_tokenizer(vocab_size)
    drafter.bind(tiny_target(vocab_size=vocab_size), tokenizer)
    session = drafter.open([DraftContext(tuple(tokenizer.encode(text)))])
    (tree,) = session.propose([0], [DraftBudget(30, 30)])
    return tokenizer.decode(tree.token_ids)


@pytest.mark.usefixtures("build")
def test_the_whole_documents_are_in_the_datastore(model: str, isolated_home: Path) -> None:
    report = build_datastore("notes", model)
    tokenizer = tiny_tokenizer()

    assert report.built
    assert report.seconds > 0
    assert report.path == isolated_home / "datastores/notes" / tokenizer.vocabulary_fingerprint
    assert report.manifest == read_manifest(report.path)
    assert report.manifest.origin == DatastoreOrigin(
        source="notes",
        source_version=current_generation(index_dir("notes")).manifest.index_version,
        tokenizer=tokenizer.vocabulary_fingerprint,
        model="toy",
        vocab_size=64,
    )
    counts = (report.manifest.num_texts, report.manifest.num_tokens)
    assert counts == (3, sum(map(len, TEXTS.values())))
    # Passages are shorter; a document is one text all the same.
    store = open_datastore(report.path)
    ids = tokenizer.encode(TEXTS["ships.txt"])
    match = store.longest_match(ids[:-1])
    assert (match.length, store.continuations(match, 9, 9)) == (len(ids) - 1, [ids[-1:]])


@pytest.mark.usefixtures("build")
def test_the_drafter_finds_it_by_the_name_of_the_index(model: str) -> None:
    build_datastore("notes", model)

    assert continued("i bake the b") == "read"
    assert continued("the s") == "hip left at dawn"


def test_it_is_built_again_when_the_index_was(model: str, build: Callable[..., None]) -> None:
    first, second = build_datastore("notes", model), build_datastore("notes", model)
    assert (first.built, second.built) == (True, False)
    assert second.manifest == first.manifest
    assert build_datastore("notes", model, force=True).built

    build(**{"bread.md": "bake the bun"})
    assert continued("bake the b") == "read"  # the one there is stays usable
    third = build_datastore("notes", model)
    assert (third.built, third.path) == (True, first.path)
    assert third.manifest.source_version != first.manifest.source_version
    assert continued("bake the b") == "un"


@pytest.mark.usefixtures("build")
def test_a_damaged_one_is_built_again(model: str) -> None:
    report = build_datastore("notes", model)
    for damaged in ("manifest.json", report.manifest.files["suffixes"].file):
        (report.path / damaged).write_bytes(b"x")
        assert build_datastore("notes", model).built
        assert continued("bake the b") == "read"


@pytest.mark.usefixtures("build")
def test_models_with_one_vocabulary_share_it(model: str, tmp_path: Path) -> None:
    same, other = (save_tokenizer(tmp_path / name, n) for name, n in (("same", 64), ("b", 70)))

    assert build_datastore("notes", model).built
    assert not build_datastore("notes", same).built
    assert build_datastore("notes", other).built
    assert len(list(datastores_dir("notes").iterdir())) == 2
    assert continued("bake the b", 64) == continued("bake the b", 70) == "read"


@pytest.mark.usefixtures("build")
def test_a_vocabulary_with_gaps_is_covered(tmp_path: Path) -> None:
    folder = Path(save_tokenizer(tmp_path / "gaps", 64))
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    assert '"b": 6,' in text
    (folder / "tokenizer.json").write_text(text.replace('"b": 6,', '"b": 200,'), encoding="utf-8")

    assert build_datastore("notes", str(folder)).manifest.vocab_size == 201


def test_an_index_that_was_not_built_is_refused(model: str, isolated_home: Path) -> None:
    with pytest.raises(IndexFormatError, match="no index in .*notes") as caught:
        build_datastore("notes", model)
    assert caught.value.hint == "build it: specrag index build notes"
    assert not (isolated_home / "datastores").exists()


@pytest.mark.usefixtures("build")
def test_a_damaged_index_is_refused(model: str) -> None:
    path = index_dir("notes") / SEGMENTS_NAME / "seg-000001" / PASSAGES_NAME
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(IndexFormatError, match="was altered after it was written"):
        build_datastore("notes", model)


@pytest.mark.usefixtures("build")
def test_two_builders_do_not_meet(model: str) -> None:
    report = build_datastore("notes", model)
    with builder_lock(report.path), pytest.raises(InputError, match="another process is building"):
        build_datastore("notes", model)


@pytest.mark.usefixtures("build")
def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ModelError, match="did you mean 'smollm2-135m-instruct'"):
        build_datastore("notes", "smollm2-135m")


@pytest.mark.parametrize("progress", [True, False])
@pytest.mark.usefixtures("build")
def test_progress_is_shown_when_asked_for(
    model: str, progress: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    build_datastore("notes", model, progress=progress)
    errors = capsys.readouterr().err
    assert ("tokenizing: 100%" in errors) == ("sorting: 100%" in errors) == progress
