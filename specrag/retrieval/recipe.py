"""Index recipes: strict TOML that says what to index and how. Depends on errors and loaders."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from specrag.errors import ConfigError, suggest
from specrag.retrieval.search_settings import SearchMode, SearchSettings
from specrag.retrieval.sources.catalog import DEFAULT_PATTERNS
from specrag.retrieval.sources.source import ReadOptions
from specrag.retrieval.splitter import check_chunking

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TYPE_NAMES = {str: "a string", int: "an integer", list: "a list of strings"}


@dataclass(frozen=True, slots=True)
class IndexRecipe:
    """What to index and how.

    Attributes:
        name: Name of the index; it becomes a folder name.
        corpus: The folder or file to index.
        encoder: Name or folder of the encoder.
        description: One line for people.
        patterns: Globs that choose files, as ``load_folder`` reads them.
        ignore: Patterns of files and folders to pass over, as in an ignore file.
        text_column: Of tables and JSON: each row is a document with this column as its text.
        id_column: Of tables and JSON: names the documents.
        chunk_size: Most tokens in a passage.
        chunk_overlap: Most tokens shared by neighbouring passages.
        search: ``dense``, ``bm25`` or ``hybrid``, which found more in every set that was measured.
        vectors: How vectors are kept: ``auto``, ``flat``, ``hnsw``, ``ivf``, ``ivf-pq``, or a FAISS
            factory such as ``IVF256,SQ8``.
        nprobe: Cells that a search of an IVF index looks into.
        ef_search: Nodes that a search of an HNSW index keeps.
    """

    name: str
    corpus: Path
    encoder: str
    description: str = ""
    patterns: tuple[str, ...] = DEFAULT_PATTERNS
    ignore: tuple[str, ...] = ()
    text_column: str | None = None
    id_column: str | None = None
    chunk_size: int = 200
    chunk_overlap: int = 40
    search: SearchMode = "hybrid"
    vectors: str = "auto"
    nprobe: int | None = None
    ef_search: int | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"an index name holds letters, digits, '.', '_' and '-', and starts with a letter "
                f"or digit; got {self.name!r}"
            )
        if not self.patterns:
            raise ConfigError(f"patterns must name at least one glob, got {self.patterns!r}")
        check_chunking(self.chunk_size, self.chunk_overlap)
        # Checked here, where the file can be named.
        _ = self.search_settings

    @property
    def read_options(self) -> ReadOptions:
        """How files are read."""
        return ReadOptions(text_column=self.text_column, id_column=self.id_column)

    @property
    def search_settings(self) -> SearchSettings:
        """How the index is searched."""
        return SearchSettings(self.search)


def load_recipe(path: Path) -> IndexRecipe:
    """Reads a recipe file.

    Args:
        path: A TOML file with the fields of ``IndexRecipe`` as keys; ``corpus`` is relative to it.

    Raises:
        ConfigError: The file is missing or is not TOML, or a key is unknown, missing or of the
            wrong type.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the recipe {str(path)!r}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{str(path)!r} is not valid TOML: {error}") from error
    try:
        return _recipe(content, path.parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error


def _recipe(content: Mapping[str, Any], folder: Path) -> IndexRecipe:
    known = {field.name: field for field in fields(IndexRecipe)}
    for key in content:
        if key not in known:
            raise ConfigError(f"unknown key {key!r}; {suggest(key, known)}")
    for name, field in known.items():
        if name not in content and field.default is MISSING:
            raise ConfigError(f"the key {name!r} is missing")
    values = {key: _checked(key, value) for key, value in content.items()}
    return IndexRecipe(**{**values, "corpus": folder / values["corpus"]})


def _checked(key: str, value: Any) -> Any:
    numbers = ("chunk_size", "chunk_overlap", "nprobe", "ef_search")
    kinds: dict[str, type] = {**dict.fromkeys(numbers, int), "patterns": list, "ignore": list}
    kind = kinds.get(key, str)
    is_strings = not isinstance(value, list) or all(isinstance(entry, str) for entry in value)
    if not isinstance(value, kind) or isinstance(value, bool) or not is_strings:
        raise ConfigError(f"{key} must be {_TYPE_NAMES[kind]}, got {value!r}")
    return tuple(value) if isinstance(value, list) else value
