"""Any LangChain vector store or retriever in the place of an index.

Only the methods of LangChain's interfaces are called; LangChain itself is not imported.
"""

from __future__ import annotations

import threading
from typing import Any

from specrag.errors import ConfigError, InputError
from specrag.retrieval.document import Passage, ScoredPassage
from specrag.retrieval.filters import Filter
from specrag.retrieval.retriever import Retriever

_RELEVANCE = "similarity_search_with_relevance_scores"


class LangChainRetriever(Retriever):
    """Asks a LangChain ``VectorStore`` or ``BaseRetriever``.

    A vector store's relevance scores are passed on; where there are none, the n-th passage has the
    score 1 / n. Offsets are those of LangChain's ``start_index`` where a splitter kept it, and
    count from the start of the passage where not.

    Args:
        source: The vector store or retriever.
        name: Name for people.
        version: Changes with the content; a calibrated gate holds for one version.

    Raises:
        ConfigError: It is neither.
    """

    def __init__(self, source: Any, name: str = "", version: str = "unknown") -> None:
        if not is_langchain(source):
            raise ConfigError(
                f"{type(source).__name__} is no LangChain vector store or retriever",
                hint="it needs similarity_search or invoke",
            )
        self._source = source
        self._name = name or type(source).__name__
        self._version = version
        self._lock = threading.Lock()
        self._num_lookups = 0
        self._ids: dict[tuple[str, int, str], int] = {}

    @property
    def name(self) -> str:
        """As it was given, or the class of the source."""
        return self._name

    @property
    def index_version(self) -> str:
        """As it was given."""
        return self._version

    @property
    def fingerprint(self) -> str:
        """Made of the source's class, the name and the version: its content cannot be seen."""
        return f"langchain:{type(self._source).__name__}:{self._name}:{self._version}"

    @property
    def num_lookups(self) -> int:
        """Calls of ``retrieve`` so far that looked something up."""
        return self._num_lookups

    def retrieve(self, query: str, k: int, where: Filter | None = None) -> list[ScoredPassage]:
        """Asks the source; see the contract. Filters are refused: each store has its own."""
        if not query.strip():
            raise InputError(f"the query is blank: {query!r}", hint="ask something")
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        if where is not None:
            raise InputError(
                f"{self._name} takes no filters of specrag",
                hint="give the store's own, such as as_retriever(search_kwargs={'filter': ...})",
            )
        with self._lock:
            self._num_lookups += 1
        found: dict[int, ScoredPassage] = {}
        for rank, (document, score) in enumerate(self._ask(query, k), start=1):
            passage = self._passage(document)
            found.setdefault(passage.id, ScoredPassage(passage, _score(score, rank)))
        best = sorted(found.values(), key=lambda one: (-one.score, one.passage.id))
        return best[:k]

    def _ask(self, query: str, k: int) -> list[tuple[Any, float | None]]:
        if hasattr(self._source, "similarity_search"):
            try:
                # Plain scores are distances in some stores and similarities in others.
                return list(getattr(self._source, _RELEVANCE)(query, k=k))
            except (AttributeError, NotImplementedError):
                return [(one, None) for one in self._source.similarity_search(query, k=k)]
        return [(one, None) for one in self._source.invoke(query)]

    def _passage(self, document: Any) -> Passage:
        text, metadata = str(document.page_content), dict(document.metadata or {})
        start = metadata.get("start_index")
        start = start if isinstance(start, int) and start >= 0 else 0
        key = str(metadata.get("source") or getattr(document, "id", None) or self._name)
        with self._lock:
            number = self._ids.setdefault((key, start, text), len(self._ids))
        page = str(metadata.get("page_label", ""))
        return Passage(
            number, key, text, start, start + len(text), int(page) if page.isdecimal() else None
        )


def is_langchain(source: Any) -> bool:
    """Tells whether something has the methods of a LangChain vector store or retriever.

    Args:
        source: Anything.
    """
    methods = ("similarity_search", "invoke")
    return any(callable(getattr(source, name, None)) for name in methods)


def _score(score: float | None, rank: int) -> float:
    return 1.0 / rank if score is None else float(score)
