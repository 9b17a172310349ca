"""Searches one FAISS index: asks it for candidates, compares those exactly, asks for more."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from specrag.retrieval.exact_vectors import ExactVectors, Ranking, Vectors, best_rows
from specrag.retrieval.vector_factory import VectorSettings
from specrag.retrieval.vector_kind import VectorKind
from specrag.retrieval.vector_rows import SelectedRows, VectorRows

_LEAST_EF_SEARCH = 128
_EF_SEARCH_FOR = 100_000  # vectors; a larger graph needs more candidates for the same recall
_LEAST_PROBES = 16
# Up to so many rows, or this share of all, are compared one by one without asking FAISS.
_FEW_ROWS = 1000
_FEW_SHARE = 0.02
# From this share on, what may not be found is thrown away afterwards: asking about each row that
# FAISS looks at takes longer.
_MOST_ROWS = 0.9
_SPARE = 8  # candidates beyond k, to see whether the scores at the border are equal
_MORE = 4  # how much more is asked for when that was too little
# Of a score, relative to the best one: two ways of summing may differ by this.
_TOLERANCE = 1e-5


class Searched(NamedTuple):
    """What a search looks at.

    Attributes:
        inner: The FAISS index that numbers its vectors from 0.
        kind: What it is.
        vectors: Its vectors as they were given.
        rows: Its ids by row.
        settings: How hard to look.
    """

    inner: Any
    kind: VectorKind
    vectors: ExactVectors
    rows: VectorRows
    settings: VectorSettings


def search(
    searched: Searched, queries: Vectors, k: int, selected: SelectedRows | None
) -> Iterator[Ranking]:
    """Yields scores and ids of the best vectors of each query, best first.

    There are ``k`` of them whenever so many may be found: an index that returns fewer is asked
    again with more effort, and at last every vector is compared.

    Args:
        searched: What to search.
        queries: [num_queries, dimension].
        k: How many to find, at least 1.
        selected: The rows that may be found, None for all.
    """
    num_allowed = len(searched.rows) if selected is None else len(selected)
    most = min(k, num_allowed)
    if not most or _by_hand(searched, most, selected):
        yield from (_compare_all(searched, query, most, selected) for query in queries)
        return
    found: list[Ranking | None] = [None] * len(queries)
    effort, open_places = 1, np.arange(len(queries))
    while len(open_places):
        wanted = _num_candidates(searched, most, num_allowed, effort)
        if wanted >= num_allowed:
            for place in open_places:
                found[place] = _compare_all(searched, queries[place], most, selected)
            break
        rows = _candidates(searched, queries[open_places], wanted, effort, selected)
        for place, candidates in zip(open_places, rows, strict=True):
            found[place] = _ranked(searched, queries[place], candidates, most, selected)
        open_places = np.array([place for place in open_places if found[place] is None], dtype=int)
        effort *= _MORE
    yield from (ranking for ranking in found if ranking is not None)


def _by_hand(searched: Searched, most: int, selected: SelectedRows | None) -> bool:
    total = len(searched.rows)
    if selected is None:
        return not searched.kind.exact and 2 * most >= total
    return len(selected) <= max(_FEW_ROWS, _FEW_SHARE * total) or 2 * most >= len(selected)


def _compare_all(
    searched: Searched, query: Vectors, most: int, selected: SelectedRows | None
) -> Ranking:
    rows = np.arange(len(searched.rows)) if selected is None else selected.rows
    return best_rows(query, searched.vectors, rows, searched.rows.ids[rows], most)


def _num_candidates(searched: Searched, most: int, num_allowed: int, effort: int) -> int:
    """Returns how many candidates FAISS is asked for."""
    kind, total = searched.kind, len(searched.rows)
    if kind.exact:
        wanted = most + _SPARE * effort
    else:
        wanted = most * effort * (1 if kind.lossless else searched.settings.rescore)
    if not _told(searched, num_allowed):
        wanted = math.ceil(wanted * total / num_allowed)
        return min(wanted, total)
    return min(wanted, num_allowed)


def _told(searched: Searched, num_allowed: int) -> bool:
    """Returns whether FAISS itself leaves out what may not be found."""
    return searched.kind.selects and num_allowed < _MOST_ROWS * len(searched.rows)


def _candidates(
    searched: Searched, queries: Vectors, wanted: int, effort: int, selected: SelectedRows | None
) -> npt.NDArray[np.int64]:
    kind, settings, total = searched.kind, searched.settings, len(searched.rows)
    told = selected is not None and _told(searched, len(selected))
    # Graphs and lists look at what may not be found, too, so they have to look further.
    thinned = effort * (1 if selected is None else total / len(selected))
    nprobe = settings.nprobe or default_nprobe(kind.num_lists)
    ef_search = settings.ef_search or default_ef_search(total)
    parameters = kind.parameters(
        selector=selected.selector if selected is not None and told else None,
        nprobe=min(math.ceil(nprobe * thinned), max(kind.num_lists, 1)),
        ef_search=min(math.ceil(max(ef_search, wanted) * thinned), total),
    )
    rows: npt.NDArray[np.int64]
    _, rows = searched.inner.search(np.ascontiguousarray(queries), wanted, params=parameters)
    return rows


def _ranked(
    searched: Searched,
    query: Vectors,
    rows: npt.NDArray[np.int64],
    most: int,
    selected: SelectedRows | None,
) -> Ranking | None:
    """Orders candidates by their exact scores; None where there should be more of them."""
    rows = rows[rows >= 0]
    if selected is not None:
        rows = rows[selected.mask[rows]]
    if len(rows) < most:
        return None
    scores, ids = best_rows(query, searched.vectors, rows, searched.rows.ids[rows], len(rows))
    if searched.kind.exact:
        # Equal scores are ordered by id, so all that equal the last one have to be known.
        margin = _TOLERANCE * max(float(np.abs(scores).max()), 1.0)
        if scores[most - 1] - scores[-1] <= margin:
            return None
    return scores[:most], ids[:most]


def default_nprobe(num_lists: int) -> int:
    """Returns how many lists a search looks into when nobody says.

    Args:
        num_lists: Of the inverted file.
    """
    return min(num_lists, max(_LEAST_PROBES, round(math.sqrt(num_lists))))


def default_ef_search(num_vectors: int) -> int:
    """Returns how many candidates a search of a graph keeps when nobody says.

    Args:
        num_vectors: Of the graph.
    """
    return round(_LEAST_EF_SEARCH * max(1.0, math.sqrt(num_vectors / _EF_SEARCH_FOR)))
