from __future__ import annotations

import pytest

from specrag.retrieval.document import MetadataValue
from specrag.retrieval.sources.formats.values import typed, typed_column


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("0", 0),
        ("1.50", 1.5),
        ("2e3", 2000.0),
        ("True", True),
        ("007", "007"),
        ("1" * 19, "1" * 19),
        ("1e999", "1e999"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("1_000", "1_000"),
        ("٣", "٣"),
        ("x", "x"),
    ],
)
def test_texts_get_types(text: str, value: MetadataValue) -> None:
    assert typed(text) == value
    assert type(typed(text)) is type(value)


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["1", "2"], [1, 2]),
        (["1", "2.5"], [1.0, 2.5]),
        (["1", "A3"], ["1", "A3"]),
        (["1", "true"], ["1", "true"]),
        (["true", "FALSE"], [True, False]),
        ([], []),
    ],
)
def test_a_column_has_one_type(texts: list[str], values: list[MetadataValue]) -> None:
    found = typed_column(texts)
    assert (found, list(map(type, found))) == (values, list(map(type, values)))
