"""Every damage is found: any flipped bit, any missing end, any part that does not fit."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval.build import open_writer
from specrag.retrieval.check import check_index
from specrag.retrieval.document import Document
from specrag.retrieval.document_index import DocumentIndex
from specrag.retrieval.encoder import HashingEncoder
from specrag.retrieval.generation import current_generation, publish
from specrag.retrieval.layout import LOCK_NAME
from specrag.retrieval.recipe import IndexRecipe

ENCODER = HashingEncoder(16)
NUM_DAMAGES = 540


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of two segments and some deletions; its files are not to be changed."""
    path = tmp_path_factory.mktemp("sound") / "index"
    recipe = IndexRecipe(
        "small", Path("x"), "hashing", chunk_size=20, chunk_overlap=5, vectors="SQ8"
    )
    for name in ("old", "new"):
        with open_writer(recipe, ENCODER, path) as writer:
            for number in range(20):
                writer.put(Document(f"{name}{number}", f"{name} number {number}.", "s"))
            writer.commit()
    with open_writer(recipe, ENCODER, path) as writer:
        writer.remove("old3")
        writer.commit()
    return path


@pytest.fixture
def index(sound: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    shutil.copytree(sound, tmp_path / "index")
    return tmp_path / "index"


def files_in_use(index: Path) -> list[Path]:
    generation = current_generation(index)
    number = generation.number
    found = [index / "CURRENT", index / f"manifest-{number:06d}.json"]
    for segment in generation.manifest.segments:
        folder = generation.segment_path(segment)
        found += [folder / name for name in segment.files]
    return found


def damages(data: bytes, random_: random.Random) -> Iterator[bytes]:
    """Flips of one bit and cuts, without an end."""
    while True:
        flipped = bytearray(data)
        flipped[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
        yield bytes(flipped)
        yield data[: random_.randrange(len(data))]
        yield data + bytes([random_.randrange(256)])


def test_a_sound_index_is_found_sound(sound: Path) -> None:
    report = check_index(sound)
    assert (report.is_sound, report.problems, report.notes) == (True, (), ())
    assert report.num_files == len(files_in_use(sound)) - 2
    assert len(current_generation(sound).manifest.segments) == 2


def test_every_damage_is_found(index: Path) -> None:
    random_ = random.Random(0)
    paths = files_in_use(index)
    tried = 0
    for path in paths:
        data = path.read_bytes()
        for damaged in islice(damages(data, random_), NUM_DAMAGES // len(paths) + 1):
            path.write_bytes(damaged)
            assert not check_index(index).is_sound, f"{path.name} was {len(damaged)} bytes"
            with pytest.raises(IndexFormatError) as caught:
                DocumentIndex.open(index)
            assert "specrag index build" in str(caught.value.hint)
            tried += 1
        path.write_bytes(data)
    assert tried >= 500
    assert check_index(index).is_sound


def test_a_missing_file_is_found(index: Path) -> None:
    for path in files_in_use(index):
        data = path.read_bytes()
        path.unlink()
        assert not check_index(index).is_sound
        path.write_bytes(data)


def test_what_does_not_fit_together_is_found_below_the_checksums(index: Path) -> None:
    generation = current_generation(index)
    manifest = generation.manifest
    first, second = manifest.segments
    swapped = {**first.files, "vectors.faiss": second.files["vectors.faiss"]}
    for name in ("vectors.faiss", "vectors.exact"):
        old = generation.segment_path(second) / name
        if old.exists():
            shutil.copy(old, generation.segment_path(first) / name)
    odd = replace(manifest, segments=(replace(first, files=swapped), second))
    publish(index, 99, odd)
    messages = [found.message for found in check_index(index).problems]
    assert len(messages) == first.num_documents
    assert all("has no vector with the id" in message for message in messages)


def test_a_wrong_count_is_found(index: Path) -> None:
    manifest = current_generation(index).manifest
    publish(index, 99, replace(manifest, num_passages=manifest.num_passages + 1))
    (problem,) = check_index(index).problems
    assert problem.message == "the manifest tells 40 passages, its segments 39"


def test_what_a_dead_writer_left_is_noted(index: Path) -> None:
    (index / ".building-123").mkdir()
    (index / LOCK_NAME).touch()
    report = check_index(index)
    assert report.is_sound
    assert report.notes == (
        ".building-123 was left by a writer that died; the next one removes it",
    )


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no index in"):
        check_index(tmp_path / "none")
