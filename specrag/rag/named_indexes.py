"""Names of indexes, recipes and folders become recipes, encoders, writers and retrievers."""

from __future__ import annotations

import hashlib
import logging
import re
import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from specrag.errors import ConfigError, IndexFormatError
from specrag.home import find_definition, home
from specrag.locking import WAIT_SECONDS, BusyError
from specrag.models.embedded import DEFAULT_ENCODER, resolve
from specrag.retrieval.build import (
    BuildReport,
    build_from_documents,
    build_index,
    open_writer,
    origin_of,
    vector_settings,
)
from specrag.retrieval.document import Document
from specrag.retrieval.encoder import Encoder, SentenceTransformerEncoder
from specrag.retrieval.generation import current_generation
from specrag.retrieval.recipe import IndexRecipe, load_recipe
from specrag.retrieval.rerank import CrossEncoderReranker, Reranker
from specrag.retrieval.retriever import IndexRetriever, Retriever, open_index
from specrag.retrieval.search_settings import SearchSettings
from specrag.retrieval.writer import IndexWriter

_LOG = logging.getLogger(__name__)

_CHUNK_SIZE, _CHUNK_OVERLAP = 180, 30  # of what comes without a recipe, in tokens


def index_dir(name: str) -> Path:
    """Returns the folder where the index of a recipe lies or will lie.

    Args:
        name: The recipe's name.
    """
    return home() / "indexes" / name


def named_recipe(index: str | Path) -> IndexRecipe:
    """Returns the recipe that a user named.

    Args:
        index: A recipe's name, the path of its TOML file, or a folder or file of documents (a
            ``Path``, or a text with a slash such as ``./notes``).

    Raises:
        ConfigError: There is no such recipe, or it is not valid.
    """
    path = Path(index).expanduser()
    if path.suffix == ".toml":
        return load_recipe(path)
    if isinstance(index, Path) or "/" in index or len(path.parts) > 1:
        return docs_recipe(path)
    return load_recipe(find_definition("indexes", index, f"{index}/recipe.toml"))


def docs_recipe(docs: Path) -> IndexRecipe:
    """Returns a recipe for a user's own documents, named after their place.

    Args:
        docs: A folder, or one file.

    Raises:
        ConfigError: It does not exist.
    """
    place = docs.expanduser().resolve()
    if not place.exists():
        raise ConfigError(
            f"there is no folder or file {str(docs)!r}",
            hint="give a folder of documents that exists",
        )
    digest = hashlib.sha256(str(place).encode()).hexdigest()[:8]
    slug = re.sub(r"[^a-z0-9]+", "-", place.stem.lower()).strip("-") or "docs"
    return IndexRecipe(
        name=f"{slug}-{digest}",
        corpus=place,
        encoder=DEFAULT_ENCODER,
        description=f"Documents in {place}",
        chunk_size=_CHUNK_SIZE,
        chunk_overlap=_CHUNK_OVERLAP,
    )


def named_encoder(name: str) -> Encoder:
    """Returns the encoder that a recipe names; its weights are loaded on first use.

    Args:
        name: An embedded name, a hub name or a local folder.

    Raises:
        ModelError: It cannot be fetched.
    """
    source = resolve(name)
    return SentenceTransformerEncoder(source.path, name=source.name)


def build_named(
    index: str | Path,
    *,
    progress: bool = False,
    force: bool = False,
    strict: bool = False,
    wait_seconds: float = WAIT_SECONDS,
) -> tuple[IndexRecipe, BuildReport]:
    """Builds the index of a recipe, or brings it up to date.

    Args:
        index: As for ``named_recipe``.
        progress: Whether to show progress bars on standard error.
        force: Whether to write everything anew.
        strict: Whether the first file that cannot be used is an error.
        wait_seconds: How long to wait for another process that changes the index.
    """
    recipe = named_recipe(index)
    encoder = named_encoder(recipe.encoder)
    return recipe, build_index(
        recipe,
        encoder,
        index_dir(recipe.name),
        progress=progress,
        force=force,
        strict=strict,
        wait_seconds=wait_seconds,
    )


def write_named(
    index: str | Path,
    *,
    progress: bool = False,
    wait_seconds: float = WAIT_SECONDS,
) -> AbstractContextManager[IndexWriter]:
    """Opens the index of a recipe for changes; nothing is read from its corpus.

    Args:
        index: As for ``named_recipe``.
        progress: Whether to show progress bars on standard error.
        wait_seconds: How long to wait for another process that changes the index.

    Raises:
        InputError: Another process changes it still.
    """
    recipe = named_recipe(index)
    return open_writer(
        recipe,
        named_encoder(recipe.encoder),
        index_dir(recipe.name),
        progress=progress,
        wait_seconds=wait_seconds,
    )


def open_named(
    index: str | Path,
    progress: bool = False,
    search: SearchSettings | None = None,
    reranker: Reranker | None = None,
) -> IndexRetriever:
    """Opens the index of a recipe, building it first when it is missing or out of date.

    Files that could not be read are logged as warnings.

    Args:
        index: As for ``named_recipe``.
        progress: Whether to show progress bars on standard error.
        search: How to search; as the recipe says by default.
        reranker: Orders the best passages anew.

    Raises:
        IndexFormatError: The index is damaged; the hint is the command that builds it again.
    """
    recipe = named_recipe(index)
    encoder = named_encoder(recipe.encoder)
    place = index_dir(recipe.name)
    _bring_up_to_date(recipe, encoder, place, progress)
    try:
        return open_index(
            place,
            encoder,
            search or recipe.search_settings,
            vectors=vector_settings(recipe),
            reranker=reranker,
        )
    except IndexFormatError as error:
        # Only here is it known what the user called the index.
        command = f"specrag index build {shlex.quote(str(index))} --force"
        raise IndexFormatError(error.message, hint=f"build it again: {command}") from error


def named_reranker(name: str) -> Reranker:
    """Returns a reranker; its weights are loaded on first use.

    Args:
        name: A hub name or a local folder of a cross-encoder.
    """
    return CrossEncoderReranker(name)


def open_documents(
    documents: Sequence[Document], name: str, *, progress: bool = False
) -> Retriever:
    """Opens an index of documents that are at hand, building it when it is not there yet.

    Args:
        documents: What to ask; their ids differ.
        name: Of the index; the same name with other documents builds it anew.
        progress: Whether to show progress bars on standard error.

    Raises:
        InputError: There is no document.
    """
    recipe = IndexRecipe(
        name,
        Path(),
        DEFAULT_ENCODER,
        chunk_size=_CHUNK_SIZE,
        chunk_overlap=_CHUNK_OVERLAP,
        search="dense",  # what gates are fitted to and published figures are of
    )
    encoder = named_encoder(recipe.encoder)
    build_from_documents(documents, recipe, encoder, index_dir(name), progress=progress)
    return open_index(index_dir(name), encoder, recipe.search_settings)


def _bring_up_to_date(recipe: IndexRecipe, encoder: Encoder, place: Path, progress: bool) -> None:
    try:
        report = build_index(recipe, encoder, place, progress=progress)
    except BusyError:
        if _is_usable(recipe, encoder, place):
            _LOG.warning("another process changes %s; asked as it was before", recipe.name)
            return
        report = build_index(recipe, encoder, place, progress=progress, wait_seconds=WAIT_SECONDS)
    for failure in report.failures:
        _LOG.warning("left out %s", failure)


def _is_usable(recipe: IndexRecipe, encoder: Encoder, place: Path) -> bool:
    try:
        return current_generation(place).manifest.origin == origin_of(recipe, encoder)
    except IndexFormatError:
        return False
