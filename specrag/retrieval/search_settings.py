"""How an index is searched. Depends on errors alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from specrag.errors import ConfigError, suggest

SearchMode = Literal["dense", "bm25", "hybrid"]
SEARCH_MODES: tuple[SearchMode, ...] = get_args(SearchMode)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How an index is searched.

    Attributes:
        mode: ``dense`` compares vectors, ``bm25`` counts shared words, ``hybrid`` fuses both.
        rerank_candidates: Passages that a reranker is given.
        diversity: From 0, only similarity to the query counts, to 1, only the difference of the
            passages from each other (1 - lambda of maximal marginal relevance).
    """

    mode: SearchMode = "dense"
    rerank_candidates: int = 20
    diversity: float = 0.0

    def __post_init__(self) -> None:
        if self.mode not in SEARCH_MODES:
            raise ConfigError(
                f"unknown search mode {self.mode!r}; {suggest(self.mode, SEARCH_MODES)}"
            )
        if self.rerank_candidates < 1:
            raise ConfigError(f"rerank_candidates must be at least 1, got {self.rerank_candidates}")
        if not 0.0 <= self.diversity <= 1.0:
            raise ConfigError(f"diversity must be from 0 to 1, got {self.diversity}")
