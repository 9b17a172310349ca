"""Builds an index folder from a recipe, or brings one up to date: read, split, encode, publish."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from specrag.errors import ConfigError, InputError
from specrag.retrieval.document import Document
from specrag.retrieval.encoder import Encoder
from specrag.retrieval.generation import Generation
from specrag.retrieval.layout import IndexOrigin
from specrag.retrieval.recipe import IndexRecipe
from specrag.retrieval.sources.catalog import READER_VERSION
from specrag.retrieval.sources.source import LoadFailure, ReadOptions
from specrag.retrieval.splitter import SPLITTER_VERSION
from specrag.retrieval.sync import Root, SyncReport, added_root, carry_over, sync
from specrag.retrieval.vector_factory import VectorSettings
from specrag.retrieval.writer import IndexWriter

_NUM_FAILURES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What came of a build.

    Attributes:
        path: The index folder.
        index_version: Short digest of its content.
        num_documents: Documents in it.
        num_passages: Passages in it.
        changes: What changed, document by document.
        failures: Files that could not be used.
        num_encoded: Passages that the encoder was run on; others had vectors already.
        built: False when the index was up to date already.
        seconds: How long it took.
    """

    path: Path
    index_version: str
    num_documents: int
    num_passages: int
    changes: SyncReport
    num_encoded: int
    built: bool
    seconds: float

    @property
    def failures(self) -> tuple[LoadFailure, ...]:
        """Files that could not be used, ordered by path."""
        return tuple(sorted(self.changes.failures, key=lambda failure: failure.path))


def build_index(
    recipe: IndexRecipe,
    encoder: Encoder,
    destination: Path,
    *,
    progress: bool = False,
    force: bool = False,
    strict: bool = False,
    wait_seconds: float = 0.0,
) -> BuildReport:
    """Builds an index, or brings the one that is there up to date.

    Only files that changed are read and only texts that are new are encoded. Readers that have
    the index open keep what they see.

    Args:
        recipe: What to index.
        encoder: Turns passages into vectors; its model is not loaded when nothing is new.
        destination: The index folder; made if it does not exist.
        progress: Whether to show progress bars on standard error.
        force: Whether to write everything anew.
        strict: Whether the first file that cannot be used is an error.
        wait_seconds: How long to wait for another writer to finish.

    Raises:
        ConfigError: The passages are larger than the encoder takes.
        InputError: The corpus holds nothing to index, or another process is writing.
    """
    started = time.perf_counter()
    with open_writer(
        recipe, encoder, destination, fresh=force, progress=progress, wait_seconds=wait_seconds
    ) as writer:
        before = writer.base.generation if writer.base else None
        roots = [corpus_root(recipe), *_added(writer)]
        changes = sync(writer, roots, strict=strict, progress=progress)
        carry_over(writer, roots, changes)
        if not writer.num_documents:
            raise _nothing_to_index(changes, recipe.corpus)
        return _committed(writer, before, changes, started)


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
        documents: All that the index is to hold; their ids differ.
        recipe: How; its corpus and patterns are not looked at.
        encoder: Turns passages into vectors.
        destination: The index folder.
        progress: Whether to show progress bars on standard error.
        force: Whether to write everything anew.

    Raises:
        ConfigError: The passages are larger than the encoder takes.
        InputError: There is no document, or another process is writing.
    """
    started = time.perf_counter()
    if not documents:
        raise InputError(f"there is no document to index for {recipe.name!r}")
    changes = SyncReport()
    with open_writer(recipe, encoder, destination, fresh=force, progress=progress) as writer:
        before = writer.base.generation if writer.base else None
        for document in tqdm(documents, "splitting", disable=not progress):
            is_known = writer.find_id(document.id) is not None
            if writer.put(document):
                (changes.updated if is_known else changes.added).append(document.id)
            else:
                changes.num_unchanged += 1
        wanted = {document.id for document in documents}
        old = [info.id for info in writer.base.documents()] if writer.base else []
        gone = [key for key in old if key not in wanted]
        if gone:
            changes.removed += writer.remove(*gone)
        return _committed(writer, before, changes, started)


def vector_settings(recipe: IndexRecipe) -> VectorSettings:
    """Returns how the vectors of a recipe are kept and searched.

    Args:
        recipe: What to index and how.
    """
    return VectorSettings(recipe.vectors, nprobe=recipe.nprobe, ef_search=recipe.ef_search)


def corpus_root(recipe: IndexRecipe) -> Root:
    """Returns where the files of a recipe are looked for.

    Args:
        recipe: What to index.
    """
    return Root(
        "", recipe.corpus, recipe.patterns, ignore=recipe.ignore, options=recipe.read_options
    )


def open_writer(
    recipe: IndexRecipe,
    encoder: Encoder,
    destination: Path,
    *,
    fresh: bool = False,
    progress: bool = False,
    wait_seconds: float = 0.0,
) -> AbstractContextManager[IndexWriter]:
    """Opens the index of a recipe for changes.

    Args:
        recipe: What to index and how.
        encoder: Turns passages into vectors.
        destination: The index folder; made if it does not exist.
        fresh: Whether to begin anew.
        progress: Whether to show progress bars on standard error.
        wait_seconds: How long to wait for another writer to finish.

    Raises:
        ConfigError: The passages are larger than the encoder takes.
        InputError: Another process is writing, or the folder cannot be written to.
    """
    _check_fits(recipe, encoder)
    return IndexWriter.open(
        destination,
        recipe.name,
        encoder,
        origin_of(recipe, encoder),
        settings=vector_settings(recipe),
        fresh=fresh,
        progress=progress,
        wait_seconds=wait_seconds,
    )


def origin_of(recipe: IndexRecipe, encoder: Encoder) -> IndexOrigin:
    """Returns what decides how documents become passages and vectors.

    Args:
        recipe: What to index and how.
        encoder: Turns passages into vectors.
    """
    return IndexOrigin(
        encoder=encoder.name,
        encoder_fingerprint=encoder.fingerprint,
        dimension=encoder.dimension,
        chunk_size=recipe.chunk_size,
        chunk_overlap=recipe.chunk_overlap,
        splitter_version=SPLITTER_VERSION,
        reader_version=READER_VERSION,
        reading="" if recipe.read_options == ReadOptions() else repr(recipe.read_options),
        vectors=recipe.vectors,
    )


def _committed(
    writer: IndexWriter, before: Generation | None, changes: SyncReport, started: float
) -> BuildReport:
    generation = writer.commit()
    return BuildReport(
        path=generation.path,
        index_version=generation.manifest.index_version,
        num_documents=generation.manifest.num_documents,
        num_passages=generation.manifest.num_passages,
        changes=changes,
        num_encoded=writer.num_encoded,
        built=before is None or generation.number != before.number,
        seconds=time.perf_counter() - started,
    )


def _added(writer: IndexWriter) -> list[Root]:
    return [added_root(Path(root)) for root in writer.roots]


def _check_fits(recipe: IndexRecipe, encoder: Encoder) -> None:
    if recipe.chunk_size > encoder.max_tokens:
        raise ConfigError(
            f"chunk_size is {recipe.chunk_size} tokens, but the encoder {encoder.name!r} takes at "
            f"most {encoder.max_tokens}; the rest of each passage could not be found",
            hint=f"set chunk_size to {encoder.max_tokens} or less",
        )


def _nothing_to_index(changes: SyncReport, corpus: Path) -> InputError:
    failures = changes.failures
    shown = "; ".join(str(failure) for failure in failures[:_NUM_FAILURES_SHOWN])
    return InputError(
        f"none of the {len(failures)} files in {str(corpus)!r} can be used: {shown}",
        hint="put readable files there",
    )
