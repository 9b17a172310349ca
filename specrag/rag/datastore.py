"""The token datastore of an index: its documents in a model's tokens, for a drafter to copy."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from specrag.drafters.stores.arrays import DatastoreArrays
from specrag.drafters.stores.file import (
    datastores_dir,
    is_complete,
    read_manifest,
    write_datastore,
)
from specrag.drafters.stores.manifest import DatastoreManifest, DatastoreOrigin
from specrag.errors import IndexFormatError
from specrag.models.embedded import DEFAULT_TARGET, resolve
from specrag.models.tokenizer import Tokenizer
from specrag.rag.named_indexes import index_dir
from specrag.retrieval.builder_lock import builder_lock
from specrag.retrieval.document_index import DocumentIndex
from specrag.retrieval.generation import current_generation


@dataclass(frozen=True, slots=True)
class DatastoreReport:
    """What came of building a datastore.

    Attributes:
        path: Its folder.
        manifest: What it says of itself.
        built: False when it was up to date already.
        seconds: How long it took.
    """

    path: Path
    manifest: DatastoreManifest
    built: bool
    seconds: float


def build_datastore(
    index: str, model: str = DEFAULT_TARGET, *, progress: bool = False, force: bool = False
) -> DatastoreReport:
    """Builds the token datastore of an index, unless it is up to date.

    Only the tokenizer of the model is loaded. Models that share a vocabulary share a datastore.

    Args:
        index: Name of an index that was built.
        model: An embedded name, a hub name, a local folder or a ``.gguf`` path.
        progress: Whether to show progress bars on standard error.
        force: Whether to build even if nothing has changed.

    Raises:
        ModelError: The tokenizer cannot be fetched or loaded.
        IndexFormatError: There is no such index, or it is damaged.
        InputError: The documents are too short, another process is building, or the datastore
            cannot be written.
    """
    started = time.perf_counter()
    source = resolve(model)
    tokenizer = Tokenizer.load(source)
    generation = current_generation(index_dir(index))
    origin = DatastoreOrigin(
        source=index,
        source_version=generation.manifest.index_version,
        tokenizer=tokenizer.vocabulary_fingerprint,
        model=source.name,
        # Some vocabularies have gaps, so that the highest id is above their size.
        vocab_size=1 + max(tokenizer.backend.get_vocab().values()),
    )
    folder = datastores_dir(index) / origin.tokenizer
    with builder_lock(folder):
        current = _usable(folder, origin)
        manifest = None if force else current
        if manifest is None:
            with DocumentIndex.open(index_dir(index)) as documents:
                texts = _encoded(documents, tokenizer, progress)
                arrays = DatastoreArrays.build(texts, origin.vocab_size, progress=progress)
            manifest = write_datastore(folder, arrays, origin)
    return DatastoreReport(
        folder, manifest, built=manifest is not current, seconds=time.perf_counter() - started
    )


def _usable(folder: Path, origin: DatastoreOrigin) -> DatastoreManifest | None:
    """Returns the manifest of a datastore that was made from the same, None without one."""
    try:
        manifest = read_manifest(folder)
    except IndexFormatError:
        return None
    is_same = manifest.origin._replace(model=origin.model) == origin
    return manifest if is_same and is_complete(folder, manifest) else None


def _encoded(
    documents: DocumentIndex, tokenizer: Tokenizer, progress: bool
) -> Iterator[Sequence[int]]:
    for info in tqdm(documents.documents(), "tokenizing", disable=not progress):
        yield tokenizer.encode(documents.document(info.id).text)
