"""Builds an index folder from a recipe: load, split, encode, write, publish."""

from __future__ import annotations

import hashlib
import importlib.metadata
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from specrag.errors import ConfigError, IndexFormatError, InputError
from specrag.retrieval.builder_lock import builder_lock
from specrag.retrieval.document import Document, Passage
from specrag.retrieval.encoder import Encoder
from specrag.retrieval.generation import (
    Generation,
    building_folder,
    check_files,
    current_generation,
    prune,
    publish,
)
from specrag.retrieval.layout import (
    FORMAT_VERSION,
    PASSAGES_NAME,
    VECTORS_NAME,
    Manifest,
    file_record,
)
from specrag.retrieval.loaders import LoadFailure, LoadReport, load_folder
from specrag.retrieval.recipe import IndexRecipe
from specrag.retrieval.splitter import SPLITTER_VERSION, Splitter
from specrag.retrieval.store import PassageStore
from specrag.retrieval.vector_index import VectorIndex

_NUM_FAILURES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What came of a build.

    Attributes:
        path: The folder of the generation now in use.
        index_version: Short digest of its content.
        num_documents: Documents in it.
        num_passages: Passages in it.
        failures: Files of the corpus that could not be used.
        built: False when the index was up to date already.
        seconds: How long it took.
    """

    path: Path
    index_version: str
    num_documents: int
    num_passages: int
    failures: tuple[LoadFailure, ...]
    built: bool
    seconds: float


def build_index(
    recipe: IndexRecipe,
    encoder: Encoder,
    destination: Path,
    *,
    progress: bool = False,
    force: bool = False,
) -> BuildReport:
    """Builds an index, unless the one that is there was made from the same things.

    The index in use stays as it is until the new one is complete; the one replaced is kept until
    the next build, for readers that have it open.

    Args:
        recipe: What to index.
        encoder: Turns passages into vectors; its model is not loaded when nothing has changed.
        destination: The index folder; made if it does not exist.
        progress: Whether to show progress bars on standard error.
        force: Whether to build even if nothing has changed.

    Raises:
        ConfigError: The passages are larger than the encoder takes.
        InputError: The corpus holds nothing to index, or another process is building.
    """
    started = time.perf_counter()
    _check_fits(recipe, encoder)
    loaded = load_folder(recipe.corpus, recipe.patterns)
    _check_any(loaded, recipe.corpus)
    report = build_from_documents(
        loaded.documents, recipe, encoder, destination, progress=progress, force=force
    )
    seconds = time.perf_counter() - started
    return replace(report, failures=loaded.failures, seconds=seconds)


def build_from_documents(
    documents: Sequence[Document],
    recipe: IndexRecipe,
    encoder: Encoder,
    destination: Path,
    *,
    progress: bool = False,
    force: bool = False,
) -> BuildReport:
    """Builds an index of documents that are at hand, as ``build_index`` does of a folder's.

    Args:
        documents: What to index; their ids differ.
        recipe: How; its corpus and patterns are not looked at.
        encoder: Turns passages into vectors.
        destination: The index folder.
        progress: Whether to show progress bars on standard error.
        force: Whether to build even if nothing has changed.

    Raises:
        ConfigError: The passages are larger than the encoder takes.
        InputError: There is no document, or another process is building.
    """
    started = time.perf_counter()
    _check_fits(recipe, encoder)
    if not documents:
        raise InputError(f"there is no document to index for {recipe.name!r}")
    origin = _origin(recipe, encoder, documents)
    with builder_lock(destination):
        current = _usable_generation(destination)
        unchanged = current is not None and _was_made_from(current.manifest, origin)
        generation = current if unchanged and not force else None
        if generation is None:
            generation = _build(documents, encoder, destination, origin, progress)
            prune(destination, generation, current.path if current else None)
    return BuildReport(
        path=generation.path,
        index_version=generation.manifest.index_version,
        num_documents=generation.manifest.num_documents,
        num_passages=generation.manifest.num_passages,
        failures=(),
        built=generation is not current,
        seconds=time.perf_counter() - started,
    )


def corpus_fingerprint(documents: Sequence[Document]) -> str:
    """Returns a digest of ids and texts that does not depend on where the corpus lies.

    Args:
        documents: All documents, in a fixed order.
    """
    digest = hashlib.sha256()
    for document in documents:
        for part in (document.id, document.text):
            data = part.encode()
            digest.update(len(data).to_bytes(8))
            digest.update(data)
    return f"sha256:{digest.hexdigest()}"


def _check_fits(recipe: IndexRecipe, encoder: Encoder) -> None:
    if recipe.chunk_size > encoder.max_tokens:
        raise ConfigError(
            f"chunk_size is {recipe.chunk_size} tokens, but the encoder {encoder.name!r} takes at "
            f"most {encoder.max_tokens}; the rest of each passage could not be found",
            hint=f"set chunk_size to {encoder.max_tokens} or less",
        )


def _check_any(loaded: LoadReport, corpus: Path) -> None:
    if not loaded.documents:
        shown = "; ".join(
            f"{failure.path}: {failure.reason}" for failure in loaded.failures[:_NUM_FAILURES_SHOWN]
        )
        raise InputError(
            f"none of the {len(loaded.failures)} files in {str(corpus)!r} can be used: {shown}",
            hint="put readable text files there",
        )


def _origin(
    recipe: IndexRecipe, encoder: Encoder, documents: Sequence[Document]
) -> Mapping[str, Any]:
    """Returns the part of a manifest that says what an index is made from."""
    return {
        "format_version": FORMAT_VERSION,
        "name": recipe.name,
        "encoder": encoder.name,
        "encoder_fingerprint": encoder.fingerprint,
        "chunk_size": recipe.chunk_size,
        "chunk_overlap": recipe.chunk_overlap,
        "splitter_version": SPLITTER_VERSION,
        "corpus_fingerprint": corpus_fingerprint(documents),
    }


def _was_made_from(manifest: Manifest, origin: Mapping[str, Any]) -> bool:
    return all(getattr(manifest, key) == value for key, value in origin.items())


def _usable_generation(destination: Path) -> Generation | None:
    """Returns the generation in use, None when there is none or it is damaged."""
    try:
        generation = current_generation(destination)
        # Reading all bytes again would make the usual case, nothing to do, slow.
        check_files(generation, contents=False)
    except IndexFormatError:
        return None
    return generation


def _build(
    documents: Sequence[Document],
    encoder: Encoder,
    destination: Path,
    origin: Mapping[str, Any],
    progress: bool,
) -> Generation:
    with building_folder(destination) as folder:
        splitter = Splitter(origin["chunk_size"], origin["chunk_overlap"], encoder.count_tokens)
        passages = _write_passages(folder / PASSAGES_NAME, documents, splitter, progress)
        _write_vectors(folder / VECTORS_NAME, passages, encoder, progress)
        manifest = Manifest(
            **origin,
            dimension=encoder.dimension,
            num_documents=len(documents),
            num_passages=len(passages),
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            specrag_version=_specrag_version(),
            files={name: file_record(folder / name) for name in (VECTORS_NAME, PASSAGES_NAME)},
        )
        return publish(destination, folder, manifest)


def _write_passages(
    path: Path, documents: Sequence[Document], splitter: Splitter, progress: bool
) -> list[Passage]:
    passages: list[Passage] = []
    with PassageStore.create(path) as store:
        for document in tqdm(documents, "splitting", disable=not progress):
            parts = splitter.split(document, first_id=len(passages))
            store.put(document, parts)
            passages.extend(parts)
    return passages


def _write_vectors(
    path: Path, passages: Sequence[Passage], encoder: Encoder, progress: bool
) -> None:
    texts = [passage.text for passage in passages]
    index = VectorIndex.create(encoder.dimension)
    ids = np.array([passage.id for passage in passages], dtype=np.int64)
    index.add(ids, encoder.encode_documents(texts, progress=progress))
    index.save(path)


def _specrag_version() -> str:
    try:
        return importlib.metadata.version("specrag")
    except importlib.metadata.PackageNotFoundError:
        return "source"  # run from a checkout that is not installed
